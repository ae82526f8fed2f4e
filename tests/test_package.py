"The package as a user gets it: it imports, ships its class splits, and does nothing on import"
import ast, csv, gzip, importlib, json, re, subprocess, sys
from importlib.resources import files
from importlib.util import find_spec

import pytest

from project import importable, package, root, settings

splits = sorted(p.name for p in (package/'splits').glob('*.json'))
models = sorted(p.parent.name for p in (package/'models').glob('*/config.json'))

quiet_import = '''
import random, sys
import fastai.basics, numpy, torch, torchvision
before = random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
flags = torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(), list(sys.path)
import importlib
for name in sys.argv[1:]: importlib.import_module(f'fcam.{name}')
assert before == (random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist()), 'a random state moved'
assert 'accelerate' not in sys.modules, 'needed by several processes only'
assert flags == (torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(), list(sys.path)), 'a setting changed'
'''

def python(code, folder, *arguments):
    "Run code in a new interpreter in `folder`"
    return subprocess.run([sys.executable, '-c', code, *arguments], cwd=folder, capture_output=True, text=True)

answers_are_light = """import sys
heavy = 'fastai spacy fasthtml starlette fastprogress matplotlib IPython ot gradio'.split()
for name in heavy: sys.modules[name] = None     # who imports one gets an error
from PIL import Image
from fcam.classify import FewShotClassifier
pictures = {name: [Image.new('RGB', (32, 32), name)]*2 for name in ('red', 'blue')}
FewShotClassifier(device='cpu', verbose=False).fit(pictures).predict(pictures['red'])"""

@pytest.mark.parametrize('module', importable())
def test_module_imports(module):
    found = importlib.import_module(f'fcam.{module}')
    missing = [name for name in found.__all__ if not hasattr(found, name)]
    assert not missing and found.__all__

def test_init_does_nothing():
    body = ast.parse((package/'__init__.py').read_text(encoding='utf-8')).body
    assert [ast.unparse(node) for node in body] == [f"__version__ = {settings()['version']!r}"]

def test_import_is_quiet(tmp_path):
    done = python(quiet_import, tmp_path, *importable())
    assert done.returncode == 0, done.stderr
    assert done.stdout == '' and not list(tmp_path.iterdir())

def test_bare_import_is_light(tmp_path):
    done = python("import sys, fcam; assert not {'torch', 'fastai', 'matplotlib'} & sys.modules.keys()", tmp_path)
    assert done.returncode == 0, done.stderr

light_answers = """import sys, torch
from fcam.classifiers.features import Features
from fcam.classifiers.scores import ClassScores, rule_by
from fcam.model import load_fcam
local = torch.rand(4, 3, 320)
bank = Features(local, local.mean(1), torch.arange(4).numpy()//2)
ClassScores(rule_by('whole_and_parts', load_fcam('cifar_fs').metric), bank)(bank)
assert 'sympy' not in sys.modules"""

def test_answers_do_without_training(tmp_path):
    "Nor its web stack: fastai and what it brings take seconds"
    done = python(answers_are_light, tmp_path)
    assert done.returncode == 0, done.stderr

def test_answers_do_without_sympy(tmp_path):
    "torch.broadcast_shapes would load it, which takes a second"
    done = python(light_answers, tmp_path)
    assert done.returncode == 0, done.stderr

@pytest.mark.skipif(find_spec('gradio') is not None, reason='gradio is installed')
def test_without_gradio_the_page_names_its_extra(tmp_path):
    done = python('from fcam.app.command import app_command; app_command()', tmp_path)
    assert done.returncode and "pip install gradio" in done.stderr

def test_package_has_no_ceilings(): assert '<' not in settings()['requirements']

def test_some_splits_ship(): assert {'cifar_fs.json', 'cub.json', 'fc100.json', 'mini_imagenet.json', 'tiered_imagenet.json'} <= set(splits)

@pytest.mark.parametrize('name', splits)
def test_split_ships_with_its_source(name):
    split = json.loads((files('fcam')/'splits'/name).read_text(encoding='utf-8'))
    assert split['source'].strip()
    parts = [split[part] for part in ('train', 'val', 'test')]
    sets = [set(part['fine_names'] if isinstance(part, dict) else part) for part in parts]
    assert all(sets) and len(set.union(*sets)) == sum(map(len, sets)), 'two sets share a class'

@pytest.mark.parametrize('part', ['train', 'val', 'test'])
def test_mini_imagenet_lists_its_images(part):
    split = json.loads((files('fcam')/'splits'/'mini_imagenet.json').read_text(encoding='utf-8'))
    with gzip.open(files('fcam')/'splits'/f'mini_imagenet_{part}.csv.gz', 'rt') as f: rows = list(csv.DictReader(f))
    assert {row['label'] for row in rows} == set(split[part]) and len(rows) == 600*len(split[part])

# ---- models that come with the package

def test_some_model_ships(): assert 'cifar_fs' in models

@pytest.mark.parametrize('name', models)
def test_model_ships_small_and_with_its_card(name):
    folder = package/'models'/name
    assert sorted(p.name for p in folder.iterdir()) == ['README.md', 'config.json', 'model.safetensors']
    assert sum(p.stat().st_size for p in folder.iterdir()) < 8e6
    card = (folder/'README.md').read_text(encoding='utf-8')
    for said in ('license: apache-2.0', f"load_fcam('{name}')", '## Data', '## Training', '## Accuracy', '## What it is good for', 'what not'): assert said in card, said
    assert not re.search('[" ]/[a-z]', (folder/'config.json').read_text(encoding='utf-8')), 'a path of the machine that trained it'

@pytest.mark.parametrize('name', models)
def test_model_tells_new_classes_apart(name):
    "On images like none of its training: a disc and a cross, by one of each"
    import torch
    from fcam.model import load_fcam
    model = load_fcam(name, device='cpu', precision='float32')
    assert all(p.dtype == torch.float32 and p.isfinite().all() for p in model.parameters())
    y, x = torch.meshgrid(*[torch.linspace(-1, 1, 64)]*2, indexing='ij')
    shapes = dict(disc=(x**2 + y**2 < 0.5), cross=(x.abs() < 0.2) | (y.abs() < 0.2))
    def image(name): return (200*shapes[name][..., None]*torch.rand(3) + 55*torch.rand(64, 64, 3)).byte().numpy()
    clf = model.classifier({name: [image(name) for _ in range(3)] for name in shapes})
    right = [str(clf.predict(image(name))[0]) == name for name in [*shapes]*10]
    assert sum(right) >= 16, right

def test_commands_exist():
    lines = settings()['console_scripts'].split()
    assert [line.split('=')[0] for line in lines] == ['fcam_train', 'fcam_eval', 'fcam_predict', 'fcam_reproduce', 'fcam_app']
    for line in lines:
        module, name = line.split('=')[1].split(':')
        assert callable(getattr(importlib.import_module(module), name))

def test_changelog_knows_the_version():
    "The newest section is of that version, or of what comes after it"
    headings = [line.split()[1] for line in (root/'CHANGELOG.md').read_text(encoding='utf-8').splitlines() if line.startswith('## ')]
    assert settings()['version'] in (headings[0], headings[1] if headings[0] == 'Unreleased' else None)
