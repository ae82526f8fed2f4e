"""How the pages of the site differ from those that nbdev makes by itself

nbdev puts an entry with the signature before each exported cell, drops what is marked `#| hide`, links the names of
functions, and gives the rest to Quarto. `settings.ini` names what is done differently: a `renderer` for the entries,
and `procs`, which see each cell on its way. Only the build of the documentation calls them: an editable install has
this folder as the package `fcam_site`, a wheel has it not."""
import ast
import importlib
import inspect
import io
import re
import textwrap
import tokenize
from pathlib import Path

from fastcore.docments import docments

_functions = ast.FunctionDef, ast.AsyncFunctionDef

def _parsed(symbol):
    "The definition of a function or class as a tree, and the comment on each line; or None, {}"
    try: source = textwrap.dedent(inspect.getsource(symbol))
    except (OSError, TypeError): return None, {}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {o.start[0]: o.string.lstrip('# ') for o in tokens if o.type == tokenize.COMMENT}
    return ast.parse(source).body[0], comments

def _written(function):
    "`{name: (type, default, comment)}` of each parameter, and of `return`, as the source has them"
    tree, comments = _parsed(function)
    if not isinstance(tree, _functions): return {}
    found, given = {}, tree.args
    named = given.posonlyargs + given.args
    defaults = dict(zip(named[len(named) - len(given.defaults):], given.defaults))
    defaults |= dict(zip(given.kwonlyargs, given.kw_defaults))
    for one in filter(None, [*named, given.vararg, *given.kwonlyargs, given.kwarg]):
        default = defaults.get(one)
        kind, equals = (ast.unparse(o) if o else '' for o in (one.annotation, default))
        found[one.arg] = kind, equals, comments.get((default or one).end_lineno, '')
    if tree.returns:
        found['return'] = ast.unparse(tree.returns), '', comments.get(tree.returns.end_lineno, '')
    return found

_stars = {inspect.Parameter.VAR_POSITIONAL: '*', inspect.Parameter.VAR_KEYWORD: '**'}

def _parameters(function):
    "`(name with its stars, type, default, comment)` of each parameter but self and cls"
    here, told = _written(function), docments(function, full=True)
    delegated = _written(getattr(function, '__delwrap__', None))
    for i, (name, one) in enumerate(inspect.signature(function).parameters.items()):
        if i == 0 and name in ('self', 'cls'): continue
        default = '' if one.default is one.empty else repr(one.default)
        comment = (told.get(name) or {}).get('docment') or ''
        row = here.get(name) or delegated.get(name) or ('', default, comment)
        yield _stars.get(one.kind, '') + name, *row

def _fields(cls):
    "`(name, type, default, comment)` of each field"
    for base in reversed(cls.__mro__):
        tree, comments = _parsed(base)
        for node in tree.body if tree else []:
            if not isinstance(node, ast.AnnAssign): continue
            default, comment = node.value, comments.get(node.end_lineno, '')
            known = getattr(cls, '__dataclass_fields__', {}).get(node.target.id)
            if limits := known and known.metadata.get('limits'):
                comment += f'; in {limits}' if isinstance(limits, str) else f': {", ".join(limits)}'
            if isinstance(default, ast.Call) and default.args: default = default.args[0]
            default = ast.unparse(default) if default else ''
            yield node.target.id, ast.unparse(node.annotation), default, comment

def _table(rows, *heads):
    "In Markdown, without the columns that are empty in all rows; the last one is the widest"
    rows = [[cell.replace('|', r'\|') for cell in row] for row in rows]
    kept = [i for i in range(len(heads)) if any(row[i] for row in rows)]
    widths = ['-'*(50 if i == kept[-1] else 18) for i in kept]
    lines = [[heads[i] for i in kept], widths]
    lines += [[row[i] for i in kept] for row in rows]
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines)

def _in_code(text): return f'`{text}`' if text else ''

def _field_table(cls):
    rows = [(*map(_in_code, row[:3]), row[3]) for row in _fields(cls)]
    return _table(rows, 'field', 'type', 'default', 'meaning')

def _word(name, kind, default, comment):
    "A parameter as a signature has it"
    if not kind: return f'{name}={default}' if default else name
    kind = re.sub(r'\s*\|\s*', ' | ', kind)
    return f'{name}: {kind} = {default}' if default else f'{name}: {kind}'

def _signature(name, rows, result):
    "A block of code"
    words, end = [_word(*row) for row in rows], f' -> {result}' if result else ''
    line = f'{name}({", ".join(words)}){end}'
    if len(line) > 84: line = '\n'.join([f'{name}(', *(f'    {o},' for o in words), f'){end}'])
    return f'```python\n{line}\n```'

def _property(name, result):
    "A block of code, without brackets: `result` is `(type, '', comment)` or None"
    kind, _, comment = result or ('', '', '')
    told = f'property: {comment}' if comment else 'property'
    return f'```python\n{name}{f": {kind}" if kind else ""}  # {told}\n```'

def _installed(symbol):
    "The same object in the package, if a cell that exports it has made `symbol`; else `symbol`"
    from nbdev.config import get_config
    if getattr(symbol, '__module__', None) != '__main__': return symbol
    name, package = symbol.__qualname__, get_config().lib_path.name
    index = importlib.import_module(f'{package}._modidx').d['syms']
    modules = [module for module, names in index.items() if f'{module}.{name}' in names]
    if len(modules) != 1: return symbol
    found = importlib.import_module(modules[0])
    for part in name.split('.'): found = getattr(found, part)
    return getattr(found, 'fget', None) or found

class Signature:
    "An entry: heading, link to the source, signature, docstring, what the comments say"
    def __init__(self,
        sym, # function, method, property or class
        name:str=None, # shown in place of its own
        title_level:int=3, # of the heading
    ):
        from nbdev.showdoc import BasicMarkdownRenderer
        self.plain = BasicMarkdownRenderer(sym, name=name, title_level=title_level)
        self.is_property = isinstance(sym, property)
        self.sym, self.name = _installed(self.plain.sym), self.plain.nm
    def _blocks(self):
        "What is called and how, what is told of it"
        is_class = inspect.isclass(self.sym)
        if is_class and any(hasattr(self.sym, o) for o in ('__dataclass_fields__', '_fields')):
            return '', _field_table(self.sym)
        called = self.sym.__init__ if is_class else self.sym
        if not hasattr(called, '__code__'): called = inspect.unwrap(called)   # from `lru_cache`
        if self.is_property: return _property(self.name, _written(called).get('return')), ''
        if not hasattr(called, '__code__'): return f'```python\n{self.name}()\n```', ''
        rows, back = list(_parameters(called)), _written(called).get('return', ('', '', ''))
        told = [(_in_code(name), comment) for name, _, _, comment in rows if comment]
        if back[2]: told.append(('*returns*', back[2]))
        shown = _signature(self.name, rows, '' if is_class else back[0])
        return shown, _table(told, 'parameter', 'meaning') if told else ''
    def _repr_markdown_(self):
        head = self.plain._repr_markdown_().split('```', 1)[0].rstrip()
        shown, told = self._blocks()
        docs = re.sub(r'^(.+)', r'*\1*', self.plain.docs or '', count=1)
        return '\n\n'.join(part for part in (head, shown, docs, told) if part)

class entries_first:
    "Entries of a cell in the order of its source, which comes behind them; nbdev reverses both"
    def __init__(self,
        nb, # the notebook, as execnb reads it
    ): self.nb = nb
    def begin(self):
        "Called once, before the cells are seen"
        cells, last = self.nb.cells, -1
        for i in range(len(cells)):
            if i <= last or cells[i].cell_type != 'code': continue
            last = i
            while last + 1 < len(cells) and getattr(cells[last + 1], 'has_sd', False): last += 1
            source, entries = cells[i], cells[i + 1:last + 1][::-1]
            shown = 'exports' in source.directives_
            cells[i:last + 1] = [*entries, source] if shown else [source, *entries]

def _defined(source):
    "Names that a cell defines, those of methods with their class"
    from nbdev.showdoc import showdoc_nm
    trees = ast.parse(source).body
    return [showdoc_nm(tree) for tree in trees if isinstance(tree, (*_functions, ast.ClassDef))]

def fold_long(
    cell, # of a notebook; `directives_` are those that nbdev has read, and taken off
):
    "Folds the source of an exported cell if it has more than twelve lines, or private names alone"
    if cell.cell_type != 'code' or 'exports' not in cell.directives_: return
    lines = [line for line in cell.source.split('\n') if not line.startswith('#|')]
    names = _defined('\n'.join(lines))
    private = [re.search(r'(^|\.)_(?!_)[^.]*$', name) for name in names]
    if len(lines) > 12 or names and all(private):
        cell.source = cell.source.replace('#| code-fold: show', '#| code-fold: true', 1)
    if not names: return
    cell.source = cell.source.replace('"Exported source"', f'"Source of {", ".join(names)}"', 1)

_fence = re.compile(r'^```.*?^```[^\n]*$', re.M | re.S)
_linked = re.compile(r'\[(`[^`]+`)\]\([^)\s]*\)(?:\{[^}]*\})?')
_nested = re.compile(r'\[((?:[^][]|\[`[^`]+`\]\([^)\s]*\))*)\](?=\()')     # [... [`f`](...) ...](
_private = re.compile(r'\[(`(?:\w+\.)*_(?!_)\w+`)\]\([^)\s]*\)')                # has no entry
_temporary = re.compile(r'(?:/private)?/(?:tmp|var/folders/[^/\s]+/[^/\s]+/T)/tmp\w+')

def plain_fences(
    cell, # of a notebook
):
    "Takes links off the code in computed Markdown; printed backticks do not end their box"
    for output in cell.get('outputs', []):
        if 'text' in output: output['text'] = ''.join(output['text']).replace('```', '`\u200b``')
        text = ''.join(output.get('data', {}).get('text/markdown', ''))
        if text: output['data']['text/markdown'] = _fence.sub(
            lambda found: _linked.sub(r'\1', found[0]), text)

def own_links(
    cell, # of a notebook
):
    "Takes links off the names within a link, and off private names"
    if cell.cell_type != 'markdown': return
    cell.source = _nested.sub(lambda found: _linked.sub(r'\1', found[0]), cell.source)
    cell.source = _private.sub(r'\1', cell.source)

def short_paths(
    cell, # of a notebook
):
    "Three dots for a temporary folder in what was printed"
    for output in cell.get('outputs', []):
        if 'text' in output: output['text'] = _temporary.sub('...', ''.join(output['text']))
        data = output.get('data', {})
        for kind in filter(lambda kind: kind.startswith('text/'), data):
            data[kind] = _temporary.sub('...', ''.join(data[kind]))

def say_gpu(
    cell, # of a notebook
):
    "Folds a `cuda` cell without a stored output, with a first line in its place"
    if cell.cell_type != 'code' or 'cuda' not in cell.directives_: return
    printed = [''.join(output.get('text', '')) for output in cell.get('outputs', [])]
    if not all(re.fullmatch(r'(There is no GPU: left out\s*)+', text) for text in printed): return
    cell.outputs = []
    fold = '#| code-fold: true\n#| code-summary: "Needs a GPU: not run here"\n'
    cell.source = f'{fold}# Runs only where there is a GPU, so nothing is printed here.\n{cell.source}'

class open_links:
    "Adds to the front matter where the notebook can be opened: in Colab where it installs fcam there"
    def __init__(self,
        nb, # the notebook, as execnb reads it
    ):
        self.nb = nb
        self.installs = any('google.colab' in cell.source for cell in nb.cells)  # hidden cells go
    def __call__(self,
        cell, # of the notebook
    ):
        front = cell.source if cell.cell_type == 'raw' else ''
        if 'output-file' not in front: return
        import yaml
        from nbdev.config import get_config
        config, path = get_config(), Path(self.nb.path_).absolute()
        name = path.relative_to(config.nbs_path.parent).as_posix()
        place = f'{config.branch}/{name}'
        inside = f'github/{config.user}/{config.repo}/blob/{place}'
        colab, read = f'https://colab.research.google.com/{inside}', inside.split('/', 1)[1]
        links = [dict(text='Read on GitHub', icon='github', href=f'https://github.com/{read}')]
        if self.installs:
            links.insert(0, dict(text='Open in Colab', icon='play-circle', href=colab))
        more = yaml.safe_dump({'code-links': links}, sort_keys=False)
        cell.source = f'{front.rstrip().removesuffix("---")}{more}---\n'
