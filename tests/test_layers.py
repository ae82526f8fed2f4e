"The house: what lies where, and that modules and notebooks import only from lower floors, by explicit public name"
import ast, re, sys
from collections import Counter

import pytest

from project import cells, module_of, modules, name_of, nbs, notebooks, source

# Top to bottom. A name is a folder, or a module at the root; those of one floor do not import each other, modules of one folder may, in no circle.
floors = ['app paper', 'commands', 'classify runs', 'learner', 'training', 'model', 'encoders', 'evaluate', 'classifiers',
          'calibration episodes metric', 'patches data sinkhorn', 'encoder images transport', 'losses core']
floor = {name: -i for i, names in enumerate(floors) for name in names.split()}
mathematics = ['losses', 'transport.solver', 'transport.kernel', 'sinkhorn']

def imports(module, trees=None):
    """`(imported module, names)` of every import in a module or in given trees, wherever it stands; relative ones made absolute.
    Text that is the name of a module counts, since `import_module` may get it"""
    here, known = ['fcam', *module.split('.')], {f'fcam.{name}' for name in modules()}
    for node in (node for tree in trees or [ast.parse(source(module))] for node in ast.walk(tree)):
        if isinstance(node, ast.Constant) and node.value in known: yield node.value, []
        elif isinstance(node, ast.Import): yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[:-node.level] if node.level else []
            yield '.'.join([*base, *filter(None, [node.module])]), [alias.name for alias in node.names]

def neighbours(module, trees=None):
    "Modules of fcam that a module imports"
    for name, names in imports(module, trees):
        inside, known = name.removeprefix('fcam').lstrip('.'), modules()
        if not (name + '.').startswith('fcam.'): continue
        yield from [inside] if inside in known else [f'{inside}.{n}'.lstrip('.') for n in names if n != '__version__']

def place(module): return module.split('.')[0]

def upward(module, used, number=None):
    "Those of the modules that `module` may not import"
    def allowed(other):
        if place(other) == place(module): return other != module and '.' in other
        if floor[place(other)] != floor[place(module)]: return floor[place(other)] < floor[place(module)]
        return number is not None and number.get(other, 99) < number.get(module, -1)
    return {other for other in used if not allowed(other)}

def numbers():
    "The number of each notebook at the root, by its module"
    return {module_of(nb): int(nb.name[:2]) for nb in nbs.glob('[0-9]*.ipynb')}

def test_every_module_has_its_notebook():
    "In the same place"
    exported = {module_of(nb): re.sub(r'^\d+_', '', name_of(nb)).replace('/', '.') for nb in notebooks() if module_of(nb)}
    assert set(modules()) == set(exported) and all(module == where for module, where in exported.items())

def test_root_has_the_story_and_folders_have_a_name():
    folders = Counter(place(module) for module in modules() if '.' in module)
    assert set(folders) | set(numbers()) - {None} | {'classify'} == set(floor)   # one of its own, which the story does not need
    assert max(folders.values()) <= 8, folders
    assert not [folder for folder in folders if re.search(r'\d', folder)]

@pytest.mark.parametrize('module', modules())
def test_imports_point_down(module):
    "At the root also from lower numbers of the same floor"
    assert not upward(module, neighbours(module), numbers()), f'fcam.{module} imports {sorted(upward(module, neighbours(module), numbers()))}'

def test_no_circles():
    "Within a folder as well"
    left = {module: set(neighbours(module)) for module in modules()}
    while ready := {module for module, used in left.items() if not used & left.keys()}:
        for module in ready: del left[module]
    assert not left, f'in a circle, or above one: {sorted(left)}'

@pytest.mark.parametrize('module', modules())
def test_no_star_import(module):
    assert not [name for name, names in imports(module) if '*' in names]

@pytest.mark.parametrize('module', modules())
def test_no_private_import(module):
    "A private name stays in its module: what two need is public"
    names = {(where, name) for where, names in imports(module) for name in names}
    taken = {(s, n) for s, n in names if s.startswith('fcam') and n[0] == '_' and n != '__version__'}
    assert not taken, f'fcam.{module} imports {sorted(taken)}'

def test_names_are_given_once():
    "One class or function of a name in the whole package, private ones apart"
    found = Counter(node.name for module in modules() for node in ast.parse(source(module)).body
                    if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name[0] != '_' and not node.decorator_list)
    assert [name for name, n in found.items() if n > 1] == []

@pytest.mark.parametrize('notebook', notebooks(), ids=name_of)
def test_notebook_imports_point_down(notebook):
    "Nor do the tests of a notebook use what comes later, not even in hidden cells; a tour may, and what serves all is tried on what it serves"
    module, number = module_of(notebook), numbers()
    if not module or place(module) == 'core': return
    used = {name for name in neighbours(module, [c.tree() for c in cells(notebook) if c.kind == 'code']) if name != module}
    assert not upward(module, used, number), f'{name_of(notebook)} imports {sorted(upward(module, used, number))}'

@pytest.mark.parametrize('module', modules())
def test_modules_are_short(module):
    "A module that grows beyond this answers two questions; the headers that nbdev writes do not count"
    assert len([line for line in source(module).splitlines() if not line.startswith('# %%')]) <= 500

@pytest.mark.parametrize('notebook', notebooks(), ids=name_of)
def test_lines_are_short(notebook):
    long = [line for c in cells(notebook) if c.kind == 'code' for line in c.source.split('\n') if len(line) > 100]
    assert not long, long

@pytest.mark.parametrize('module', mathematics)
def test_mathematics_knows_only_torch(module):
    "And Triton, which comes with it, and whose version `packaging` compares"
    top = {name.split('.')[0] for name, _ in imports(module)}
    assert top - set(sys.stdlib_module_names) - {'fcam', 'triton', 'packaging'} == {'torch'}
    assert set(neighbours(module)) <= set(mathematics)
