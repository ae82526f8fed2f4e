#!/usr/bin/env python3
"""Write the owner and the name on PyPI, which settings.ini has as `user`, `repo` and `lib_name`, wherever addresses hold them.

    python .ci/owner.py && nbdev_export && python .ci/readme.py

What the files hold now is read from nbs/nbdev.yml and pyproject.toml, which this script brings in step, too.
"""
import re, subprocess
from configparser import ConfigParser
from pathlib import Path

root = Path(__file__).resolve().parent.parent
parser = ConfigParser(delimiters=['='])
parser.read(root/'settings.ini', encoding='utf-8')
cfg = parser['DEFAULT']

def found(name, pattern): return re.search(pattern, (root/name).read_text(encoding='utf-8'))[1]

addresses = {found('nbs/nbdev.yml', r'repo-url: "https://(.*)"'): cfg['git_url'].removeprefix('https://'),
             found('nbs/nbdev.yml', r'site-url: "https://(.*)"'): (cfg['doc_host'] + cfg['doc_baseurl']).removeprefix('https://')}
old_name, name = found('pyproject.toml', r'(?m)^name\s*=\s*"(.*)"'), cfg['lib_name']
installs = re.compile(rf"""(pip install '?|pypi\.org/project/|pypi/v/|(?m:^name="))({re.escape(old_name)})(?=["'\[\s/`.;]|$)""")

tracked = subprocess.run(['git', 'ls-files', '-z'], cwd=root, capture_output=True, text=True, check=True).stdout.split('\0')
endings = '.md', '.ipynb', '.yml', '.yaml', '.cff', '.toml', '.qmd', '.py'
for path in (root/one for one in tracked if one.endswith(endings)):
    if path == Path(__file__).resolve() or path.name == 'test_release.py' or not path.is_file(): continue
    text = before = path.read_text(encoding='utf-8')
    for old, new in addresses.items(): text = re.sub(rf'{re.escape(old)}(?![\w-])', new, text)
    text = installs.sub(rf'\g<1>{name}', text)
    if text == before: continue
    path.write_text(text, encoding='utf-8')
    print(path.relative_to(root))
