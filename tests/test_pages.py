"The pages of the site: entries, sources, links and front matter as `site/pages.py` makes them"
from dataclasses import fields
from types import SimpleNamespace

import pytest

from fcam_site.pages import Signature, _parsed, _written, entries_first, fold_long, open_links, own_links, plain_fences, say_gpu, short_paths
from project import root

def fragment(
    eps:float=0.5, # smoothness
    *names, # of what
    size:'int|None'=None, # pixels
    **settings, # the rest
)->list: # of fragments
    "Cut something"
    return [eps, names, size, settings]

class Piece:
    "A piece"
    def __init__(self, width:int): self.width = width # not told
    def cut(self, at:float, # in [0, 1]
    ): return at

class Cell(dict):
    "As execnb has it: items are attributes"
    __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__

def after(process, **cell):
    "The cell that a function leaves"
    cell = Cell(cell)
    process(cell)
    return cell

def rows_of(symbol):
    return [line for line in Signature(symbol)._repr_markdown_().split('\n') if line.startswith('|')][2:]

def test_definitions_as_written():
    found = _written(fragment)
    assert found['eps'] == ('float', '0.5', 'smoothness')
    assert found['settings'] == ('', '', 'the rest')
    assert found['return'] == ('list', '', 'of fragments')
    assert (_written(len), _parsed(len)) == ({}, (None, {}))

def test_entries():
    entry = Signature(fragment)._repr_markdown_()
    assert "fragment(eps: float = 0.5, *names, size: 'int | None' = None, **settings) -> list" in entry
    assert rows_of(fragment) == ['| `eps` | smoothness |', '| `*names` | of what |', '| `size` | pixels |', '| `**settings` | the rest |',
                                 '| *returns* | of fragments |']
    assert 'Piece(width: int)\n' in Signature(Piece)._repr_markdown_()
    assert rows_of(Piece.cut) == ['| `at` | in [0, 1] |']

def test_entries_of_properties_and_of_remembered_results(monkeypatch):
    from fcam.calibration import FeatureCalibration
    from fcam.learner import FCAMLearner
    def of_a_notebook(): pass                      # stands for a name of the package, which has `lru_cache`
    of_a_notebook.__module__, of_a_notebook.__qualname__ = '__main__', 'grid_sides'
    monkeypatch.chdir(root)
    assert '```python\nFCAMLearner.encoder: nn.Module  # property' in Signature(FCAMLearner.encoder)._repr_markdown_()
    assert 'FeatureCalibration.target' in (entry := Signature(FeatureCalibration.target)._repr_markdown_()) and 'target()' not in entry
    assert 'grid_sides(n_patches' in Signature(of_a_notebook, name='grid_sides')._repr_markdown_()

def test_entries_of_fields():
    from fcam.episodes import Episodes
    from fcam.training.presets import Preset
    assert [row.split(' | ')[:2] for row in rows_of(Episodes)] == [['| `support`', '`Tensor`'], ['| `query`', '`Tensor`']]
    row, = [row for row in rows_of(Preset) if row.startswith('| `warmup_drops`')]
    assert row.startswith('| `warmup_drops` | `tuple` | `(0.25, 0.5, 0.75)` | it falls to a fifth')
    assert len(rows_of(Preset)) == len(fields(Preset))

@pytest.mark.parametrize('lines, words', [(['def f(): pass'], ('fold: show', 'Source of f')), (['def _f(): pass'], ('fold: true', 'Source of _f')),
    (['x = 1']*13, ('fold: true',)), (['def __call__(self): pass'], ('fold: show',)), (['x = 1'], ('fold: show', 'Exported'))])
def test_long_and_private_sources_are_folded(lines, words):
    source = '\n'.join(['#| code-fold: show', '#| code-summary: "Exported source"', *lines])
    cell = SimpleNamespace(cell_type='code', source=source, directives_={'exports': []})
    fold_long(cell)
    for word in words: assert word in cell.source

def test_entries_come_first():
    "Sources are E, entries e, in the order of their source; the third source has none"
    cells = [SimpleNamespace(cell_type='code', n=n, directives_={'exports': []} if o == 'E' else {}, has_sd=o == 'e') for n, o in enumerate('.EeeEeEEe.E')]
    entries_first(SimpleNamespace(cells=cells)).begin()
    assert [cell.n for cell in cells] == [0, 3, 2, 1, 5, 4, 6, 8, 7, 9, 10]

def test_links_and_paths():
    text = 'see [`f`](https://a.b) and\n```python\n[`f`](https://a.b)(x)\n```'
    found = after(plain_fences, outputs=[dict(data={'text/markdown': [text]})])
    assert found.outputs[0]['data']['text/markdown'] == 'see [`f`](https://a.b) and\n```python\n`f`(x)\n```'
    found = after(plain_fences, outputs=[dict(text=['a card\n', '```python\n', 'f(x)\n```\n'])])
    assert '```' not in found.outputs[0]['text'] and found.outputs[0]['text'].count('`') == 6
    link = '[[`f`](https://a.b) and [`g`](https://a.b)](a.ipynb), [`f`](https://c.d) of [x](y)'
    assert after(own_links, cell_type='markdown', source=link).source == '[`f` and `g`](a.ipynb), [`f`](https://c.d) of [x](y)'
    assert after(own_links, cell_type='markdown', source='[`_f`](https://a.b), [`f_g`](https://a.b)').source == '`_f`, [`f_g`](https://a.b)'
    found = after(short_paths, outputs=[dict(text=['kept in /tmp/tmpx1_y/run\n']), dict(data={'text/plain': "Path('/tmp/tmpx1_y')"})])
    assert found.outputs[0]['text'] == 'kept in .../run\n' and found.outputs[1]['data']['text/plain'] == "Path('...')"

def test_gpu_cells_and_front_matter(monkeypatch):
    gpu = dict(cell_type='code', source='run()', directives_={'cuda': []})
    for none in ({}, dict(outputs=[]), dict(outputs=[dict(text=['There is no GPU: left out\n']*2)])):
        folded = after(say_gpu, **gpu, **none)
        lines = folded.source.split('\n')
        assert lines[0] == '#| code-fold: true' and lines[2].startswith('# Runs only where there is a GPU') and not folded.outputs
    for some in (dict(text='1'), dict(data={'text/plain': '1'}), dict(text='There is no GPU: left out\n1')):
        assert after(say_gpu, outputs=[some], **gpu).source == 'run()'
    monkeypatch.chdir(root)
    front = Cell(cell_type='raw', source='---\ntitle: A\noutput-file: a.html\n---\n')
    install = SimpleNamespace(source="if 'google.colab' in str(get_ipython()): ...")
    before = front.source
    for written, colab in (([front], False), ([front, install], True)):
        front.source = before
        open_links(SimpleNamespace(path_='nbs/core/a.ipynb', cells=written))(front)
        assert 'github.com/fcam/fcam/blob/main/nbs/core/a.ipynb' in front.source
        assert ('/github/fcam/fcam/blob/main/nbs/core/a.ipynb' in front.source.split('Read on')[0]) == colab
