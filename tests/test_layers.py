"Layers are one-way: modules and notebooks import modules of a lower number, by explicit public name"
import ast, re, sys

import pytest

from project import cells, modules, module_of, notebooks, numbers, package

mathematics = ['losses', 'solver', 'kernel', 'sinkhorn']

def imports(module):
    "`(imported module, names)` of every import in a module, wherever it stands; relative ones made absolute"
    for node in ast.walk(ast.parse((package/f'{module}.py').read_text(encoding='utf-8'))):
        if isinstance(node, ast.Import): yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = '.'.join(filter(None, ['fcam' if node.level else '', node.module]))
            yield start, [alias.name for alias in node.names]

def neighbours(module):
    "Modules of fcam that a module imports"
    for name, names in imports(module):
        if name == 'fcam': yield from (n for n in names if n != '__version__')
        elif name.startswith('fcam.'): yield name.split('.')[1]

def test_every_module_has_its_notebook(): assert set(modules()) == set(numbers())

def test_numbers_are_unique():
    found = numbers()
    assert len(set(found.values())) == len(found)

@pytest.mark.parametrize('module', modules())
def test_imports_point_down(module):
    order = numbers()
    upward = {name for name in neighbours(module) if name not in order or order[name] >= order[module]}
    assert not upward, f'fcam.{module} imports {sorted(upward)}'

@pytest.mark.parametrize('module', modules())
def test_no_star_import(module):
    assert not [name for name, names in imports(module) if '*' in names]

@pytest.mark.parametrize('module', modules())
def test_no_private_import(module):
    "A private name stays in its module: what two need is public, or lies in a third"
    names = {(source, name) for source, names in imports(module) for name in names}
    taken = {(s, n) for s, n in names if s.startswith('fcam') and n[0] == '_' and n != '__version__'}
    assert not taken, f'fcam.{module} imports {sorted(taken)}'

@pytest.mark.parametrize('notebook', notebooks(), ids=lambda p: p.stem)
def test_notebook_imports_point_down(notebook):
    "Nor do the tests of a notebook use what comes later, not even in hidden cells; a tour may"
    if not module_of(notebook): return
    place = re.match(r'(\d+)([a-z]?)_', notebook.name)
    order, source = numbers(), '\n'.join(c.source for c in cells(notebook) if c.kind == 'code')
    used = set(re.findall(r'^\s*(?:from|import) fcam\.(\w+)', source, re.M))
    later = {name for name in used if order[name] > (int(place[1]), place[2])}
    assert not later, f'{notebook.name} imports {sorted(later)}'

@pytest.mark.parametrize('module', modules())
def test_modules_are_short(module):
    "A module that grows beyond this holds two topics; the headers that nbdev writes do not count"
    lines = (package/f'{module}.py').read_text(encoding='utf-8').splitlines()
    assert len([line for line in lines if not line.startswith('# %%')]) <= 500

@pytest.mark.parametrize('notebook', notebooks(), ids=lambda p: p.stem)
def test_lines_are_short(notebook):
    long = [line for c in cells(notebook) if c.kind == 'code' for line in c.source.split('\n') if len(line) > 100]
    assert not long, long

@pytest.mark.parametrize('module', mathematics)
def test_mathematics_knows_only_torch(module):
    "And Triton, which comes with it, and whose version `packaging` compares"
    top = {name.split('.')[0] for name, _ in imports(module)}
    assert top - set(sys.stdlib_module_names) - {'fcam', 'triton', 'packaging'} == {'torch'}
    assert set(neighbours(module)) <= set(mathematics)
