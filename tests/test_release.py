"A release: the wheel is whole, one place has the owner and the name, and the citation is in step"
import email, re, subprocess, sys, zipfile

import pytest, yaml

from project import modules, package, root, settings

def run(*command, folder): return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout

@pytest.fixture
def checkout(tmp_path):
    "What git tracks, as it lies here now, as a repository of its own"
    files = run('git', 'ls-files', '-z', folder=root).split('\0')
    for name in filter(None, files):
        source, to = root/name, tmp_path/'checkout'/name
        if not source.is_file(): continue
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(source.read_bytes())
    run('git', 'init', '--quiet', folder=tmp_path/'checkout')
    run('git', 'add', '--all', folder=tmp_path/'checkout')
    return tmp_path/'checkout'

def build(folder):
    "The wheel's names and texts"
    run(sys.executable, '-m', 'build', '--wheel', '--no-isolation', '--outdir', 'dist', '.', folder=folder)
    wheel, = (folder/'dist').glob('*.whl')
    with zipfile.ZipFile(wheel) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist() if '.dist-info/' in name}
        return wheel.name, set(archive.namelist()), texts

def entry(texts, ending): return next(text for name, text in texts.items() if name.endswith(ending))

def test_wheel_is_whole(checkout):
    wheel, names, texts = build(checkout)
    assert wheel.startswith(f"{settings()['lib_name']}-{settings()['version']}-")
    wanted = {f"fcam/{name.replace('.', '/')}.py" for name in modules()}
    wanted |= {str(path.relative_to(root)) for kind in ('splits', 'models') for path in (package/kind).rglob('*')
               if path.is_file() and '__pycache__' not in path.parts}
    assert wanted <= names, wanted - names
    assert not [name for name in names if name.startswith(('site', 'fcam_site', 'tests', 'nbs'))]
    commands = entry(texts, 'entry_points.txt')
    for name in ('fcam_train', 'fcam_eval', 'fcam_predict', 'fcam_reproduce', 'fcam_app'): assert f'{name} = fcam.' in commands

def test_page_on_pypi_has_whole_addresses(checkout):
    text = email.message_from_string(entry(build(checkout)[2], 'METADATA')).get_payload()
    links = re.findall(r'\]\(([^)\s]+)', text)
    assert len(links) > 20 and all(link.startswith(('https://', '#')) for link in links), links
    assert f"raw.githubusercontent.com/{settings()['user']}/" in text, 'pictures'

def test_owner_and_name_have_one_place(checkout):
    old = f"{settings()['user']}/{settings()['repo']}"
    text = (checkout/'settings.ini').read_text()
    for name, value in dict(user='some-lab', repo='fewshot', lib_name='fcam-fewshot').items():
        text, n = re.subn(rf'(?m)^{name} = .*$', f'{name} = {value}', text)
        assert n == 1
    (checkout/'settings.ini').write_text(text)
    changed = run(sys.executable, '.ci/owner.py', folder=checkout).splitlines()
    assert {'nbs/index.ipynb', 'CONTRIBUTING.md', 'CITATION.cff', '_quarto.yml', 'pyproject.toml'} <= set(changed)
    run(sys.executable, '.ci/readme.py', folder=checkout)
    left = [str(path.relative_to(checkout)) for path in checkout.rglob('*')
            if path.suffix in {'.md', '.ipynb', '.yml', '.yaml', '.cff', '.toml', '.py'} and path.name != 'test_release.py'
            and re.search(rf"github\.com/{old}\b|{old.replace('/', '.github.io/')}\b|pip install '?fcam[\['\s]", path.read_text(encoding='utf-8'))]
    assert left == []
    assert run(sys.executable, '.ci/owner.py', folder=checkout) == '', 'a second time changes nothing'
    wheel, names, _ = build(checkout)
    assert wheel.startswith('fcam_fewshot-') and 'fcam/learner.py' in names and 'fcam/models/cifar_fs/config.json' in names

def test_citation_is_in_step():
    said = yaml.safe_load((root/'CITATION.cff').read_text(encoding='utf-8'))
    assert {'cff-version', 'message', 'title', 'authors', 'preferred-citation'} <= said.keys()
    assert said['version'] == settings()['version']
    assert said['repository-code'] == f"https://github.com/{settings()['user']}/{settings()['repo']}"
    assert said['preferred-citation']['doi'] == '10.48550/arXiv.2407.01967'

def test_only_the_upload_may_ask_for_a_token():
    flow = yaml.safe_load((root/'.github/workflows/publish.yaml').read_text(encoding='utf-8'))
    assert flow[True] == {'release': {'types': ['published']}}                  # YAML reads `on` as true
    assert flow['permissions'] == {'contents': 'read'} and 'permissions' not in flow['jobs']['build']
    upload = flow['jobs']['upload']
    assert (upload['permissions'], upload['needs'], upload['environment']) == ({'id-token': 'write'}, 'build', 'pypi')
    assert not [step for step in upload['steps'] if 'run' in step]
