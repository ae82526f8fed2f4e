"Packaging, from what `settings.ini` says"
import re
import sys
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

parser = ConfigParser(delimiters=['='])
parser.read('settings.ini', encoding='utf-8')
cfg = parser['DEFAULT']
# How the pages of the site look concerns a checkout alone: only an editable install has the folder `site`, as `fcam_site`.
in_checkout = ['fcam_site'] if 'editable_wheel' in sys.argv else []

def readme():
    "README.md for PyPI, where links and pictures need whole addresses"
    path, branch = Path('README.md'), cfg['branch']
    if not path.exists(): return cfg['description']
    raw = cfg['git_url'].replace('//github.com', '//raw.githubusercontent.com')
    text = re.sub(r'(!\[[^\]]*\]\()(?![a-z]+:)', rf'\g<1>{raw}/{branch}/', path.read_text(encoding='utf-8'))
    return re.sub(r'(\]\()(?![a-z]+:|#)', rf'\g<1>{cfg["git_url"]}/blob/{branch}/', text)

setup(
    name=cfg['lib_name'],
    version=cfg['version'],
    description=cfg['description'],
    long_description=readme(),
    long_description_content_type='text/markdown',
    keywords=cfg['keywords'],
    author=cfg['author'],
    author_email=cfg['author_email'],
    url=cfg['git_url'],
    project_urls={'Documentation': cfg['doc_host'] + cfg['doc_baseurl'], 'Changes': f"{cfg['git_url']}/blob/{cfg['branch']}/CHANGELOG.md"},
    license='Apache-2.0',
    classifiers=[
        'Development Status :: 3 - Alpha',
        'Intended Audience :: Developers',
        'Programming Language :: Python :: 3',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
    ],
    packages=find_packages(include=[cfg['lib_path'], f"{cfg['lib_path']}.*"]) + in_checkout,
    package_dir={name: 'site' for name in in_checkout},
    package_data={cfg['lib_path']: ['splits/*', 'models/*/*']},
    python_requires=f">={cfg['min_python']}",
    install_requires=cfg['requirements'].split(),
    extras_require={name: cfg[f'{name}_requirements'].split() for name in ('test', 'dev', 'dist', 'hub', 'app')},
    entry_points={
        'console_scripts': cfg['console_scripts'].split(),
        'nbdev': [f"{cfg['lib_path']}={cfg['lib_path']}._modidx:d"],
    },
    zip_safe=False,
)
