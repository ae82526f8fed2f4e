"The project as files: what the tests read from its notebooks, modules and settings"
import ast, json, re
from configparser import ConfigParser
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

root = Path(__file__).resolve().parent.parent
nbs, package = root/'nbs', root/'fcam'

def settings():
    parser = ConfigParser(delimiters=['='])
    parser.read(root/'settings.ini', encoding='utf-8')
    return parser['DEFAULT']

def notebooks():
    "Paths of all notebooks, as nbdev would find them"
    found = [p for p in nbs.rglob('*.ipynb') if not any(part[0] in '._' for part in p.relative_to(nbs).parts)]
    return sorted(found)

def name_of(notebook):
    "The path of a notebook below `nbs`, without its ending: what a test is named after"
    return notebook.relative_to(nbs).with_suffix('').as_posix()

@dataclass
class Cell:
    kind: str
    source: str

    def directives(self): return dict(re.findall(r'^#\|\s*([\w-]+):?[ \t]*(.*?)\s*$', self.source, re.M))
    def exported(self): return self.kind == 'code' and bool({'export', 'exports'} & self.directives().keys())

    def runs(self):
        "True where `nbdev_test` executes the cell"
        flags = self.directives()
        return self.kind == 'code' and not {'slow', 'cuda'} & flags.keys() and flags.get('eval') != 'false'

    def code(self):
        "The source with directives and magics blanked, so that line numbers stay"
        return '\n'.join('' if line.startswith(('#|', '%', '!')) else line for line in self.source.split('\n'))

    def tree(self): return ast.parse(self.code())

def cells(notebook):
    data = json.loads(notebook.read_text(encoding='utf-8'))
    return [Cell(c['cell_type'], ''.join(c['source'])) for c in data['cells']]

def module_of(notebook):
    "The module that a notebook exports, such as `images.store`, or None"
    names = [c.directives()['default_exp'] for c in cells(notebook) if c.kind == 'code' and 'default_exp' in c.directives()]
    return names[0] if names else None

def modules():
    "Names of the exported modules that lie in the package"
    found = (p.relative_to(package).with_suffix('') for p in package.rglob('*.py') if not p.stem.startswith('_'))
    return sorted('.'.join(p.parts) for p in found)

def importable():
    "Names of the modules without the one that needs gradio, where there is none"
    return [name for name in modules() if name != 'app.page' or find_spec('gradio')]

def source(module):
    "The text of an exported module"
    return (package/f'{module.replace(".", "/")}.py').read_text(encoding='utf-8')
