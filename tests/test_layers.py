"Layers are one-way: a module imports modules of a lower number, by explicit name"
import ast, sys

import pytest

from project import modules, numbers, package

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

@pytest.mark.parametrize('module', mathematics)
def test_mathematics_knows_only_torch(module):
    "And Triton, which comes with it"
    top = {name.split('.')[0] for name, _ in imports(module)}
    assert top - set(sys.stdlib_module_names) - {'fcam', 'triton'} == {'torch'}
    assert set(neighbours(module)) <= set(mathematics)
