"The notebooks as documentation: docments, assertions, README, sidebar, and the processing that comes before Quarto"
import ast, inspect, importlib, io, json, os, re, shutil, subprocess, sys, tokenize
from types import SimpleNamespace

import pytest

from project import Cell, cells, module_of, name_of, nbs, notebooks, root

hook = re.compile(r'(before|after)_\w+|forward|backward|extra_repr|__\w+__')  # called by a framework, not by name
functions = ast.FunctionDef, ast.AsyncFunctionDef
python_block = re.compile(r'^``` *python\n(.*?)^```', re.M | re.S)

def ignored(folder, names):
    "What a copy of the project leaves out"
    here = shutil.ignore_patterns('.git', '__pycache__', '*.egg-info', '.venv*', '.hypothesis', '.pytest_cache')(folder, names)
    made = {'_proc', '_docs', 'build', 'dist', 'runs', 'models'} if str(folder) == str(root) else set()
    return here | made

# ---- exported names

def owner(function):
    "Class names that a `@patch`ed function is added to, else none"
    decorators = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    if not any(isinstance(d, ast.Name) and d.id == 'patch' for d in decorators): return []
    first = (function.args.posonlyargs + function.args.args)[0]
    return [n.id for n in ast.walk(first.annotation) if isinstance(n, ast.Name)]

def definitions(cell):
    "`(qualified name, node)` of what a cell exports for others, methods of its classes included"
    for node in cell.tree().body:
        if isinstance(node, functions):
            owners = owner(node)
            if node.name[0] == '_' and not hook.fullmatch(node.name) or any(o[0] == '_' for o in owners): continue
            yield '.'.join(owners[:1] + [node.name]), node
        elif isinstance(node, ast.ClassDef) and node.name[0] != '_':
            yield node.name, node
            for method in node.body:
                if isinstance(method, functions) and (method.name[0] != '_' or method.name in ('__init__', '__call__')): yield f'{node.name}.{method.name}', method

def comment_lines(source):
    return {t.start[0] for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT}

def parameters(function):
    "`(name, first line, last line)` of each parameter but self and cls"
    a = function.args
    named = a.posonlyargs + a.args
    ends = dict(zip(named[len(named) - len(a.defaults):], a.defaults)) | {p: d for p, d in zip(a.kwonlyargs, a.kw_defaults) if d}
    for p in filter(None, [*named, a.vararg, *a.kwonlyargs, a.kwarg]):
        if p.arg in ('self', 'cls', 'ctx'): continue
        yield p.arg, p.lineno, (ends.get(p) or p).end_lineno

def inherited(name, module):
    "True for a method that a base class of another package sets, or one of ours that documents the same parameters"
    holder, _, method = name.partition('.')
    if not hasattr(module, holder) or method in ('', 'forward', '__init__', '__call__'): return False
    bases = [base for base in getattr(module, holder).__mro__[1:] if base is not object and method in vars(base)]
    def names(kind): return list(inspect.signature(vars(kind)[method]).parameters) if callable(vars(kind).get(method)) else None
    return any(base.__module__.split('.')[0] != 'fcam' or names(base) and names(base) == names(getattr(module, holder)) for base in bases)

def undocumented(name, node, comments):
    "What is missing in one definition's docments"
    if isinstance(node, ast.ClassDef):
        if not ast.get_docstring(node): yield f'{name}: no docstring'
        lines = [(ast.unparse(f.target), f.lineno, f.end_lineno) for f in node.body if isinstance(f, ast.AnnAssign)]
    else:
        if not ast.get_docstring(node) and not hook.fullmatch(node.name): yield f'{name}: no docstring'
        lines = list(parameters(node))
    for parameter, first, last in lines:
        if not {first, last} & comments: yield f'{name}: no comment on {parameter}'
    shared = len(lines) - len({first for _, first, _ in lines})
    if shared: yield f'{name}: {shared + 1} parameters on one line'

# ---- assertions

def names_in(node):
    return {n.id if isinstance(n, ast.Name) else n.attr for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))}

def asserts(tree):
    def check(call):
        f = call.func
        called = f.id if isinstance(f, ast.Name) else getattr(f, 'attr', '')
        return called.startswith(('test_', 'assert_')) or called in ('raises', 'gradcheck')
    return any(isinstance(n, ast.Assert) or isinstance(n, ast.Call) and check(n) for n in ast.walk(tree))

def bound_by(tree, name):
    "Variables that a statement of the cell makes from `name`"
    made = [s for s in ast.walk(tree) if isinstance(s, (ast.Assign, ast.AnnAssign, ast.With, ast.For, *functions, ast.ClassDef)) and name in names_in(s)]
    return {n.id for s in made for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} | {getattr(s, 'name', None) for s in made}

def asserted(name, later):
    "True if a later cell that runs in the tests asserts and mentions `name`, or a variable made from it"
    words, name = {name.rsplit('.')[-1]}, name.rsplit('.')[-1]
    for cell in later:
        if not cell.runs() or cell.exported(): continue
        tree = cell.tree()
        if asserts(tree) and words & names_in(tree): return True
        words |= bound_by(tree, name)
    return False

def shortcomings(notebook):
    "What the exported names of a notebook lack"
    found, module = cells(notebook), module_of(notebook)
    module = module and importlib.import_module(f'fcam.{module}')
    for i, cell in enumerate(found):
        if not cell.exported(): continue
        comments = comment_lines(cell.code())
        for name, node in definitions(cell):
            if inherited(name, module): continue
            yield from undocumented(name, node, comments)
            called_by_name = isinstance(node, ast.ClassDef) or not hook.fullmatch(node.name)
            if called_by_name and not asserted(name, found[i + 1:]): yield f'{name}: no assertion after it'

exporting = [nb for nb in notebooks() if module_of(nb)]

@pytest.mark.parametrize('notebook', exporting, ids=name_of)
def test_exported_names_are_documented_and_tested(notebook): assert list(shortcomings(notebook)) == []

def test_shortcomings_are_seen(tmp_path):
    "The list above can be other than empty"
    source = '#| export\ndef area(width:float, # m\n    height:float)->float:\n    return width*height'
    data = dict(cells=[dict(cell_type='code', source=source), dict(cell_type='code', source='area(1, 2)')])
    (tmp_path/'one.ipynb').write_text(json.dumps(data))
    assert list(shortcomings(tmp_path/'one.ipynb')) == ['area: no docstring', 'area: no comment on height', 'area: no assertion after it']

def test_inherited_is_told_by_the_package_of_the_base_class():
    base = type('Base', (list,), dict(scores=None, __module__='fcam.other'))
    module = SimpleNamespace(Derived=type('Derived', (base,), dict(scores=None, append=None, own=None)))
    assert [inherited(f'Derived.{name}', module) for name in ('scores', 'append', 'own')] == [False, True, False]

# ---- lessons: rule 5 of CONTRIBUTING

lessons = [nb for nb in exporting if nb.parent == nbs]

def bound_in(tree):
    "Names that the code makes at its own level, by definition, import or assignment"
    outside = [n for n in tree.body if not isinstance(n, (*functions, ast.ClassDef))]
    stored = {n.id for o in outside for n in ast.walk(o) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    aliases = {(a.asname or a.name).split('.')[0] for o in outside for n in ast.walk(o) if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names}
    return stored | aliases | {n.name for n in tree.body if isinstance(n, (*functions, ast.ClassDef))}

def departures(found):
    "Where the cells of a lesson depart from the rule"
    headings = [i for i, c in enumerate(found) if c.kind == 'markdown' and re.search('^## Tests$', c.source, re.M)]
    if len(headings) != 1: return ['no heading Tests']
    story, tests = ([c for c in part if c.kind == 'code'] for part in (found[:headings[0]], found[headings[0]:]))
    hidden = [c for c in story if 'hide' in c.directives()]
    seen = [c for c in story if c not in hidden]
    used = set().union(*(names_in(c.tree()) for c in seen if not c.exported()))
    made = set().union(*(bound_in(c.tree()) for c in seen))
    return ([f'not folded: {c.source[:60]}' for c in tests if c.source.split('\n')[0] not in ('#| code-fold: true', '#| slow', '#| cuda')]
        + [f'tested out of view: {c.source[:60]}' for c in hidden if asserts(c.tree())]
        + [f'hidden, and used in view: {name}' for c in hidden for name in sorted(bound_in(c.tree()) & used - made)])

@pytest.mark.parametrize('notebook', lessons, ids=name_of)
def test_lessons_show_what_they_use_and_end_with_their_tests(notebook): assert departures(cells(notebook)) == []

def test_classify_has_an_example_after_each_thought():
    code = [c for c in cells(nbs/'classify.ipynb') if c.kind == 'code']
    thoughts = [i for i, c in enumerate(code) if c.exported() and any(isinstance(n, (*functions, ast.ClassDef)) for n in c.tree().body)]
    assert len(thoughts) > 15
    assert not [code[i].source[:60] for i in thoughts if code[i + 1].exported() or not asserts(code[i + 1].tree())]

def test_departures_of_a_lesson_are_seen():
    def lesson(*sources): return [Cell('markdown' if o[0] == '#' and o[1] != '|' else 'code', o) for o in sources]
    shown, example = '#| exports\ndef area(): return 1', 'assert area() == one'
    good = lesson('#| code-fold: true\none = 1', shown, example, '## Tests', '#| code-fold: true\nassert area()')
    assert departures(good) == []
    bad = lesson('#| hide\none = 1', shown, example, '#| hide\nassert area()', '## Tests', 'assert area()')
    assert [o.split(':')[0] for o in departures(bad)] == ['not folded', 'tested out of view', 'hidden, and used in view']
    assert departures(good[:3]) == ['no heading Tests']

# ---- pages

@pytest.mark.parametrize('notebook', notebooks(), ids=name_of)
def test_notebook_opens_with_title_and_question(notebook):
    "nbdev makes the page's title and description of the first cell and drops the rest of it"
    first = cells(notebook)[0]
    lines = [line for line in first.source.split('\n') if line.strip()]
    assert first.kind == 'markdown' and lines[0].startswith('# ') and lines[1].startswith('> ')
    assert all(re.fullmatch(r'- aliases: \[/\w+\.html(, /\w+\.html)*\]', line) for line in lines[2:])  # where the page lay before

@pytest.mark.parametrize('notebook', notebooks(), ids=name_of)
def test_stored_outputs_have_no_warning_with_the_path_of_a_machine(notebook):
    assert 'site-packages' not in notebook.read_text(encoding='utf-8')

def test_sidebar_lists_every_notebook():
    listed = re.findall(r'(?:-|href:) (\S+\.ipynb)$', (nbs/'sidebar.yml').read_text(encoding='utf-8'), re.M)
    assert sorted(listed) == sorted(p.relative_to(nbs).as_posix() for p in notebooks())

def test_quarto_settings_are_one_file(): assert (nbs/'_quarto.yml').resolve() == root/'_quarto.yml'

in_colab = '00_tour', 'own_pictures', '11_learner'   # each installs fcam in Colab, and only there

@pytest.mark.parametrize('name', in_colab)
def test_colab_cell_installs_only_in_colab(name):
    cell, = [c for c in cells(nbs/f'{name}.ipynb') if 'google.colab' in c.source]
    assert cell.source == [c for c in cells(nbs/f'{name}.ipynb') if c.kind == 'code'][0].source    # before anything is imported
    for shell, installs in (('<google.colab._shell.Shell object at 0x7f>', 1), ('<ipykernel.zmqshell.ZMQInteractiveShell object at 0x7f>', 0)):
        ran = []
        class Shell:
            def __str__(self): return shell
            def run_line_magic(self, *args): ran.append(args)
        exec(cell.source, dict(get_ipython=Shell))
        assert ran == [('pip', 'install -q git+https://github.com/fcam/fcam')]*installs

def test_notebooks_process_for_the_docs(tmp_path):
    "Imports, `show_doc` and links as the site's build does them, without Quarto"
    copy = shutil.copytree(root, tmp_path/'fcam', symlinks=True, ignore=ignored)
    code = 'from nbdev.serve import proc_nbs; from nbdev.quarto import refresh_quarto_yml; refresh_quarto_yml(); proc_nbs(force=True, n_workers=2)'
    done = subprocess.run([sys.executable, '-c', code], cwd=copy, capture_output=True, text=True,
        env={**os.environ, 'PYTHONPATH': str(copy), 'MPLBACKEND': 'Agg'})
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'imports and other code' not in done.stderr, done.stderr
    made = {p.relative_to(copy/'_proc').as_posix() for p in (copy/'_proc').rglob('*') if p.is_file()}
    assert {p.relative_to(nbs).as_posix() for p in notebooks()} | {'_quarto.yml', 'nbdev.yml', 'sidebar.yml', 'styles.css'} <= made
    assert (copy/'nbs'/'nbdev.yml').read_text() == (nbs/'nbdev.yml').read_text(), 'nbs/nbdev.yml is not what settings.ini gives'
    for notebook in notebooks(): check_page(notebook, copy/'_proc'/notebook.relative_to(nbs))

def check_page(notebook, page):
    "The processed notebook has its front matter, an entry and the source of each exported name, and no faults"
    found = json.loads(page.read_text(encoding='utf-8'))['cells']
    front = ''.join(found[0]['source'])
    assert found[0]['cell_type'] == 'raw' and 'title:' in front and 'output-file:' in front
    place = f'github/fcam/fcam/blob/main/nbs/{name_of(notebook)}.ipynb'
    assert (f'colab.research.google.com/{place}' in front) == (name_of(notebook) in in_colab), f'{page.name}: link to Colab'
    assert place.split('/', 1)[1] in front
    assert not list(faults(found)), f'{page.name}: {list(faults(found))}'
    if not module_of(notebook): return
    code = [''.join(c['source']) for c in found if c['cell_type'] == 'code']
    entries, shown = '\n'.join(o for o in code if 'show_doc(' in o), '\n'.join(o for o in code if 'show_doc(' not in o)
    for cell in cells(notebook):
        if not cell.exported() or 'hide' in cell.directives(): continue
        for name, node in definitions(cell):
            line = f'class {node.name}' if isinstance(node, ast.ClassDef) else f'def {node.name}('
            assert line in shown, f'{page.name}: no source of {name}'
            if isinstance(node, ast.ClassDef) or '.' not in name: assert f'show_doc({name})' in entries, f'{page.name}: no entry for {name}'

def texts(cell):
    "All that the outputs of a cell say, of several forms of one the Markdown"
    for output in cell.get('outputs', []):
        forms = output.get('data', {})
        yield ''.join(output.get('text', '') or forms.get('text/markdown') or forms.get('text/plain', ''))

def faults(found):
    "What a reader of a processed page should not meet"
    for cell in found:
        source = ''.join(cell['source'])
        silent = re.search(r'^#\|\s*warning: false', source, re.M)      # Quarto leaves out what went to stderr
        said = '\n'.join(texts({**cell, 'outputs': [o for o in cell.get('outputs', []) if not silent or o.get('name') != 'stderr']}))
        words = {name for name, _ in re.findall(r'^#\|\s*([\w-]+):\s*"(.+)"$', source, re.M)}
        figures = [o for o in cell.get('outputs', []) if any(kind.startswith('image/') for kind in o.get('data', {}))]
        if figures and not {'fig-cap', 'fig-alt'} <= words: yield f'a figure without caption or alt text: {source[:80]}'
        if cell['cell_type'] == 'code':
            long = [line for line in source.split('\n') if len(line) > 100 and not line.startswith('#|')]
            if long: yield f'a line of {len(long[0])} characters: {long[0]}'
            if re.search(r'^(from|import) (fastai|fcam\.(learner|training))\b', source, re.M) and not silent:
                yield f'warnings of fastai are shown: {source[:80]}'
            if re.search(r'^#\|\s*cuda', source, re.M) and not said and 'Runs only where there is a GPU' not in source:
                yield f'a cell without output that does not say why: {source[:80]}'
        if cell['cell_type'] == 'markdown' and re.search(r'!\[\]\([^)]*\)(?!\{fig-alt)', source): yield f'an image without alt text: {source[:80]}'
        for fault in re.findall(r'/tmp/\S+|\S+/site-packages/\S+|/var/folders/\S+|(?<!\+ )\b1 epochs\b|NoneType|__main__|^epoch .*\n.*\bNone\b', said, re.M):
            yield f'{fault!r} in an output'
        for block in re.findall(r'^```.*?^```', said, re.M | re.S):
            if re.search(r'\]\(http', block): yield f'a link inside code: {block[:80]}'

def test_faults_are_seen():
    def page(kind, source, *outputs): return dict(cell_type=kind, source=source, outputs=list(outputs))
    figure = dict(output_type='display_data', data={'image/png': 'aGVsbG8=', 'text/plain': '<Figure>'})
    def printed(text): return dict(output_type='stream', text=text)
    entry = dict(output_type='display_data', data={'text/markdown': '```python\n[`f`](https://a.b)(x: int)\n```\n[`f`](https://a.b)'})
    pages = [page('code', 'plot()', figure), page('code', '#| fig-cap: "A dot."\nplot()', figure), page('code', f'x = {"1"*100}'),
        page('code', '#| cuda\nrun()'), page('markdown', '![](a.png)'), page('code', 'f()', printed('kept in /tmp/tmpab12/run\n')),
        page('code', 'f()', printed('warm-up: 1 epochs\n')), page('code', 'f()', printed('epoch  loss\n1      None\n')), page('code', 'show_doc(f)', entry),
        page('code', 'from fastai.learner import Learner'), page('code', 'f()', printed('/env/site-packages/fastai/core.py:1: FutureWarning\n'))]
    for one in pages: assert len(list(faults([one]))) == 1, one
    warned = {**printed('/env/site-packages/fastai/core.py:1: FutureWarning\n'), 'name': 'stderr'}
    good = [page('code', '#| warning: false\nfrom fastai.learner import Learner', warned), page('code', '#| fig-cap: "A dot."\n#| fig-alt: "A dot at the left."\nplot()', figure), page('code', 'f()', printed('epoch  loss\n1      0.5\n')),
        page('code', '#| cuda\n# Runs only where there is a GPU, so nothing is printed here.\nrun()'), page('markdown', '![A dot](a.png) ![](b.png){fig-alt="b"}')]
    assert list(faults(good)) == []

def test_pages_have_addresses_of_their_own():
    "nbdev names a page by its notebook without the number; an address from before leads to one page"
    names = [f'/{re.sub(r"^[0-9]+_", "", name_of(p))}.html' for p in notebooks()] + [f'/{p.stem}.html' for p in nbs.glob('*.qmd')]
    names += [alias for p in notebooks() for alias in re.findall(r'/\w+\.html', cells(p)[0].source)]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)

def test_reference_is_in_step():
    "The stored output of the page that lists the notebooks and every public name"
    outputs = json.loads((nbs/'reference.ipynb').read_text(encoding='utf-8'))['cells']
    listed = '\n'.join(text for cell in outputs for text in texts(cell))
    for notebook in notebooks():
        if notebook.parent == nbs and not notebook.name[0].isdigit(): continue
        title, question = re.match(r'# (.*)\n+> (.*)', cells(notebook)[0].source).groups()
        module = module_of(notebook)
        entry = f'### [{title}]({name_of(notebook)}.ipynb)\n\n' + (f'`fcam.{module}`: ' if module else '') + question
        assert f'{entry}\n' in f'{listed}\n', f'run nbs/reference.ipynb: {name_of(notebook)}'
        module = module and importlib.import_module(f'fcam.{module}')
        for name in module.__all__ if module else []:
            passed_on = inspect.isroutine(one := getattr(module, name)) and one.__module__ != module.__name__
            assert passed_on or f'| [<code>{name}</code>]({name_of(notebook)}.ipynb' in listed, f'run nbs/reference.ipynb: {name}'

# ---- prose

longer = 'app/page', 'commands/options'      # pages that are still to be shortened

def prose(source):
    "A Markdown cell without code, displayed equations and tables"
    source = re.sub(r'^```.*?^```[^\n]*$|\$\$.*?\$\$', '', source, flags=re.M | re.S)
    return re.sub(r'^ *\|.*$', '', source, flags=re.M)

def too_long(source):
    "Counts of words above 170 in a cell and above 120 in a paragraph or an entry of a list"
    text = prose(source)
    parts = [part for block in re.split(r'\n\s*\n', text) for part in re.split(r'\n(?=\s*(?:[-*]|\d+\.) )', block)]
    return [n for n in [n_words(text)] if n > 170] + [n for n in map(n_words, parts) if n > 120]

@pytest.mark.parametrize('notebook', [nb for nb in notebooks() if name_of(nb) not in longer], ids=name_of)
def test_cells_and_paragraphs_are_short(notebook):
    assert not [(c.source[:60], found) for c in cells(notebook) if c.kind == 'markdown' and (found := too_long(c.source))]

def test_long_prose_is_seen():
    words = 'word '*121
    assert too_long(words) == too_long(f'# Title\n\n{words}') == too_long(f'- one\n- {words}') == [121]
    assert too_long('\n\n'.join(['word '*60]*3)) == [180]
    assert too_long(f'```\n{words}\n```\n$${words}$$\n| {words} |\n' + 'word '*120) == []

# ---- README

def readme(folder, *options):
    "Run the README's writer of the project in `folder`"
    return subprocess.run([sys.executable, str(folder/'.ci'/'readme.py'), *options], capture_output=True, text=True)

def test_readme_is_in_step():
    done = readme(root, '--check')
    assert done.returncode == 0, done.stdout + done.stderr

def test_readme_writer(tmp_path):
    "Hidden cells go, outputs stay, links start at the root, and a change is seen"
    printed = [dict(output_type='stream', name='stdout', text='2\n3\n'),
               dict(output_type='display_data', data={'text/plain': ['<Figure>'], 'image/png': 'aGVsbG8='})]
    sources = [('markdown', '# one\n\n> two', []), ('code', '#| hide\nimport os', []), ('code', '#| eval: false\nprint(1)', printed),
               ('markdown', '[a](00_a.ipynb), [b](../b.md), [c](https://c.d/e), [f](f.qmd)', [])]
    (tmp_path/'nbs').mkdir()
    (tmp_path/'nbs'/'f.qmd').write_text('{{< include ../F.md >}}')
    data = dict(cells=[dict(cell_type=kind, source=source, outputs=outputs) for kind, source, outputs in sources])
    (tmp_path/'nbs'/'index.ipynb').write_text(json.dumps(data))
    shutil.copytree(root/'.ci', tmp_path/'.ci')
    assert readme(tmp_path, '--check').returncode == 1
    assert readme(tmp_path).returncode == readme(tmp_path, '--check').returncode == 0
    blocks = (tmp_path/'README.md').read_text().strip('\n').split('\n\n')
    assert blocks[1:] == ['# one', '> two', '``` python\nprint(1)\n```', '    2\n    3', '![](index_files/cell-3-output-2.png)',
        '[a](nbs/00_a.ipynb), [b](b.md), [c](https://c.d/e), [f](F.md)']
    assert (tmp_path/'index_files'/'cell-3-output-2.png').read_bytes() == b'hello'
    (tmp_path/'README.md').write_text('edited by hand')
    assert 'README.md is not what' in readme(tmp_path, '--check').stdout

def test_readme_is_finished(): assert 'TODO' not in (root/'README.md').read_text(encoding='utf-8')

def n_words(text):
    "Words that somebody reads: no code, addresses, texts of pictures"
    for pattern in (r'```.*?```', r'<!--.*?-->', r'!\[[^\]]*\]\([^)]*\)', r'(?<=\])\([^)]*\)'): text = re.sub(pattern, '', text, flags=re.S)
    return sum(bool(re.search(r'\w', word)) for word in re.split(r'[\s|]+', text))

def test_readme_is_short():
    text = (root/'README.md').read_text(encoding='utf-8')
    assert n_words('[one](two.html) **three** | 4 | ```five``` ![six](seven.png) -') == 3
    assert n_words(text[:text.index('## Commands')]) <= 800 and n_words(text) <= 1100

def test_readme_names_exist():
    "The Python of the README parses, and what it imports is there"
    blocks = python_block.findall((root/'README.md').read_text(encoding='utf-8'))
    for block in blocks:
        lines = [node for node in ast.parse(block).body if isinstance(node, (ast.Import, ast.ImportFrom))]
        exec('\n'.join(map(ast.unparse, lines)), {})
    assert blocks

def test_readme_links_exist():
    text = (root/'README.md').read_text(encoding='utf-8')
    links = re.findall(r'\]\((?![a-z]+:|#)([^)\s#]+)', text)
    assert [link for link in links if not (root/link).exists()] == []
