"""How the pages of the site differ from nbdev's: signatures, folded sources, links that open a notebook

`settings.ini` names what is used: `renderer` for the entries, `procs` for the notebooks on their way to Quarto.
Only the documentation build imports this file; it does not belong to the package.
"""
import ast, importlib, inspect, io, re, textwrap, tokenize
from pathlib import Path

import yaml
from fastcore.docments import docments
from nbdev.config import get_config
from nbdev.process import Processor
from nbdev.showdoc import BasicMarkdownRenderer, showdoc_nm

longest_shown, width = 12, 84 # lines of a source that is not folded; characters of a signature on one line
functions = ast.FunctionDef, ast.AsyncFunctionDef
fence = re.compile(r'^```.*?^```[^\n]*$', re.M | re.S)
linked_name = re.compile(r'\[(`[^`]+`)\]\([^)\s]*\)(?:\{[^}]*\})?')
link_in_link = re.compile(r'\[([^][]*)\[(`[^`]+`)\]\([^)\s]*\)([^][]*)\](?=\()')
temporary = re.compile(r'(?:/private)?/(?:tmp|var/folders/[^/\s]+/[^/\s]+/T)/tmp\w+')
one_of = re.compile(r'\s*\|\s*')

# ---- entries

def installed(symbol):
    "The same object in the installed package, if a cell that exports it has made `symbol`"
    if getattr(symbol, '__module__', None) != '__main__': return symbol
    name, index = symbol.__qualname__, importlib.import_module(f'{get_config().lib_name}._modidx').d['syms']
    modules = [module for module, names in index.items() if f'{module}.{name}' in names]
    if len(modules) != 1: return symbol
    found = importlib.import_module(modules[0])
    for part in name.split('.'): found = getattr(found, part)
    return getattr(found, 'fget', None) or found

def parsed(symbol):
    "The definition of a function or class as a tree, with the comment on each of its lines; none without a source"
    try: source = textwrap.dedent(inspect.getsource(symbol))
    except (OSError, TypeError): return None, {}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {t.start[0]: t.string.lstrip('# ') for t in tokens if t.type == tokenize.COMMENT}
    return ast.parse(source).body[0], comments

def fields(cls):
    "`(name, type, default, comment)` of each field of a dataclass or a named tuple, those of its bases first"
    for base in reversed(cls.__mro__):
        tree, comments = parsed(base)
        for node in tree.body if tree else []:
            if not isinstance(node, ast.AnnAssign): continue
            default = ast.unparse(node.value) if node.value else ''
            yield node.target.id, ast.unparse(node.annotation), default, comments.get(node.end_lineno, '')

def written(function):
    "`{name: (type, default, comment)}` of the parameters as the source of a function has them, `return` among them"
    tree, comments = parsed(function)
    if not isinstance(tree, functions): return {}
    found, given = {}, tree.args
    named = given.posonlyargs + given.args
    defaults = dict(zip(named[len(named) - len(given.defaults):], given.defaults)) | dict(zip(given.kwonlyargs, given.kw_defaults))
    for parameter in filter(None, [*named, given.vararg, *given.kwonlyargs, given.kwarg]):
        default = defaults.get(parameter)
        last = (default or parameter).end_lineno
        kind = ast.unparse(parameter.annotation) if parameter.annotation else ''
        found[parameter.arg] = kind, ast.unparse(default) if default else '', comments.get(last, '')
    if tree.returns: found['return'] = ast.unparse(tree.returns), '', comments.get(tree.returns.end_lineno, '')
    return found

def parameters(function):
    "`(name with its stars, type, default, comment)` of each parameter but self and cls; the delegated ones, too"
    here, others = written(function), docments(function, full=True)
    delegated = written(getattr(function, '__delwrap__', None))
    stars = {inspect.Parameter.VAR_POSITIONAL: '*', inspect.Parameter.VAR_KEYWORD: '**'}
    for i, (name, parameter) in enumerate(inspect.signature(function).parameters.items()):
        if i == 0 and name in ('self', 'cls'): continue
        default = '' if parameter.default is parameter.empty else repr(parameter.default)
        comment = (others.get(name) or {}).get('docment') or ''
        yield stars.get(parameter.kind, '') + name, *(here.get(name) or delegated.get(name) or ('', default, comment))

def in_code(text): return f'`{text}`' if text else ''

def table(rows, *heads):
    "A Markdown table without the columns that are empty in all rows"
    rows = [[cell.replace('|', r'\|') for cell in row] for row in rows]
    kept = [i for i in range(len(heads)) if any(row[i] for row in rows)]
    widths = ['-'*(50 if i == kept[-1] else 18) for i in kept] # relative, where a row is long
    lines = [[heads[i] for i in kept], widths, *([row[i] for i in kept] for row in rows)]
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines)

def field_table(cls):
    rows = [(in_code(name), in_code(kind), in_code(default), comment) for name, kind, default, comment in fields(cls)]
    return table(rows, 'field', 'type', 'default', 'meaning')

def signature(name, rows, result):
    "As it is called, on one line where that is short, else a parameter a line"
    def one(name, kind, default, comment):
        kind = f': {one_of.sub(" | ", kind)}' if kind else ''
        equals = ' = ' if kind else '='
        return f'{name}{kind}{equals}{default}' if default else f'{name}{kind}'
    words, end = [one(*row) for row in rows], f' -> {result}' if result else ''
    line = f'{name}({", ".join(words)}){end}'
    if len(line) > width: line = '\n'.join([f'{name}(', *(f'    {word},' for word in words), f'){end}'])
    return f'```python\n{line}\n```'

class Signature(BasicMarkdownRenderer):
    "An entry of the site: heading and source link, signature, docstring, a table of what the comments say"
    def __init__(self, sym, name=None, title_level=3):
        super().__init__(sym, name=name, title_level=title_level)
        self.sym = installed(self.sym)

    def blocks(self):
        "Signature and table"
        made = inspect.isclass(self.sym)
        if made and (hasattr(self.sym, '__dataclass_fields__') or hasattr(self.sym, '_fields')):
            return '', field_table(self.sym)
        called = self.sym.__init__ if made else self.sym
        if not hasattr(called, '__code__'): return f'```python\n{self.nm}()\n```', ''
        rows, back = list(parameters(called)), written(called).get('return', ('', '', ''))
        told = [(in_code(name), comment) for name, _, _, comment in rows if comment]
        if back[2]: told.append(('*returns*', back[2]))
        return signature(self.nm, rows, '' if made else back[0]), table(told, 'parameter', 'meaning') if told else ''

    def _repr_markdown_(self):
        head = BasicMarkdownRenderer._repr_markdown_(self).split('```', 1)[0].rstrip()
        shown, told = self.blocks()
        docs = re.sub(r'^(.+)', r'*\1*', self.docs, count=1) if self.docs else ''
        return '\n\n'.join(part for part in (head, shown, docs, told) if part)

# ---- notebooks on their way to Quarto

def source_lines(cell): return [line for line in cell.source.split('\n') if not line.startswith('#|')]

def defined(cell):
    "Names that an exported cell defines, those of methods with their class"
    trees = ast.parse('\n'.join(source_lines(cell))).body
    return [showdoc_nm(tree) for tree in trees if isinstance(tree, (*functions, ast.ClassDef))]

class entries_first(Processor):
    "Move an exported source behind its entries (nbdev's `mv_exports` does so for one, and fails at the end of a page)"
    def begin(self):
        cells = self.nb.cells
        for i in reversed(range(len(cells))):
            if cells[i].cell_type != 'code' or 'exports' not in cells[i].directives_: continue
            last = i
            while last + 1 < len(cells) and getattr(cells[last + 1], 'has_sd', False): last += 1
            cells.insert(last, cells.pop(i))

def fold_long(cell):
    "Show an exported source where it is short and public, else fold it under the names that it defines"
    if cell.cell_type != 'code' or 'exports' not in cell.directives_: return
    names = defined(cell)
    private = names and all(name.rsplit('.')[-1][0] == '_' and not name.endswith('__') for name in names)
    if len(source_lines(cell)) > longest_shown or private:
        cell.source = cell.source.replace('#| code-fold: show', '#| code-fold: true', 1)
    if names: cell.source = cell.source.replace('"Exported source"', f'"Source of {", ".join(names)}"', 1)

def plain_fences(cell):
    "nbdev links names in computed Markdown, in its code as well, where a link cannot be"
    for output in cell.get('outputs', []):
        text = output.get('data', {}).get('text/markdown')
        if not text: continue
        output['data']['text/markdown'] = fence.sub(lambda found: linked_name.sub(r'\1', found[0]), ''.join(text))

def short_paths(cell):
    "A temporary folder has another name each time, which says nothing"
    for output in cell.get('outputs', []):
        if 'text' in output: output['text'] = temporary.sub('...', ''.join(output['text']))
        data = output.get('data', {})
        for kind in data:
            if kind.startswith('text/'): data[kind] = temporary.sub('...', ''.join(data[kind]))

def own_links(cell):
    "A name in a link of ours keeps that link: nbdev puts another one into it"
    if cell.cell_type == 'markdown': cell.source = link_in_link.sub(r'[\1\2\3]', cell.source)

def say_gpu(cell):
    "A cell that only runs on a GPU says so where it has no output"
    if cell.cell_type != 'code' or 'cuda' not in cell.directives_ or cell.get('outputs'): return
    cell.source = f'# Runs only where there is a GPU, so nothing is printed here.\n{cell.source}'

class open_links(Processor):
    "Each page links its notebook, where it can be read and where it can be run"
    def cell(self, cell):
        front = cell.source if cell.cell_type == 'raw' else ''
        if not front.startswith('---') or 'output-file' not in front: return
        config, path = get_config(), Path(self.nb.path_)
        inside = f'{config.user}/{config.repo}/blob/{config.branch}/{config.nbs_path.name}/{path.name}'
        links = [dict(text='Open in Colab', icon='play-circle', href=f'https://colab.research.google.com/github/{inside}'),
                 dict(text='Read on GitHub', icon='github', href=f'https://github.com/{inside}')]
        more = yaml.safe_dump({'code-links': links}, sort_keys=False)
        cell.source = front.rstrip().removesuffix('---') + more + '---\n'
