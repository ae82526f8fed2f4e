"What the records of the experiments say: anybody can recompute their intervals and verdicts"
import json
import re
from math import sqrt
from pathlib import Path
from statistics import stdev

import pytest
from scipy.stats import t

from fcam.paper.claims import experiments
from fcam.paper.experiments import verdict_words

nbs = Path(__file__).parents[1]/'nbs'
records = {path.stem: json.loads(path.read_text(encoding='utf-8'))
           for path in sorted((nbs/'results'/'claims').glob('*.json'))}

def test_every_experiment_has_its_record():
    assert {one['experiment'] for one in records.values()} == set(experiments)

def half_and_p(difference, value):
    "The wider of the interval over the trainings and that over the tasks, and the larger p-value of `value`"
    means, deviations, n_tasks = (difference[k] for k in ('means', 'deviations', 'n_tasks'))
    n, tests = len(means), []
    if n > 2: tests.append((stdev(means)/sqrt(n), n - 1))
    if deviations and (n > 2 or difference['same_encoder']):
        error = sqrt(sum(s*s/k for s, k in zip(deviations, n_tasks)))/n
        tests.append((error, sum(n_tasks) - n))
    mean = sum(means)/n
    halves = [error*t.ppf(0.975, freedom) for error, freedom in tests]
    p_values = [2*t.sf(abs(mean - value)/error, freedom) if error else float(mean == value)
                for error, freedom in tests]
    return max(halves, default=None), max(p_values, default=None)

@pytest.mark.parametrize('name', records)
def test_verdicts_follow_from_the_record(name):
    record = records[name]
    claims = record['claims']
    def explored(p): return sorted(one[p] for one in claims if not one['primary'] and one[p] is not None)
    assert sum(one['primary'] for one in claims) == 1
    assert all(one['difference']['deviations'] for one in claims)
    assert all(part['kept'] for row in record['rows'] for part in row['trainings'])
    for one in claims:
        mean, half, paper = one['mean'], one['half'], one['paper_scaled']
        assert mean == pytest.approx(sum(one['difference']['means'])/len(one['difference']['means']))
        found = dict(p=half_and_p(one['difference'], 0.), p_paper=(half, None))
        if paper is not None: found['p_paper'] = half_and_p(one['difference'], paper)
        for key, expected in found.items():
            p, ranked = one[key], explored(key)
            assert (half, p) == pytest.approx(expected)
            if not one['primary'] and p is not None:           # by Holm
                p = max(min(1, q*(len(ranked) - i)) for i, q in enumerate(ranked) if q <= p)
            assert one[f'{key}_corrected'] == pytest.approx(p)
        word = 'not decided'
        if half is not None and one['p_corrected'] < 0.05: word = 'shown' if mean > 0 else 'opposite shown'
        elif half is not None and one['margin'] and abs(mean) + half <= one['margin']: word = 'level'
        if half is not None and word in ('shown', 'not decided') and paper is not None:
            if paper > mean and one['p_paper_corrected'] < 0.05: word = "smaller than the paper's"
        assert one['verdict'] == word
    words = [one['verdict'] for one in claims if one['primary']]
    assert record['verdict'] == (words or ['not decided'])[0]

wrong = ('not decided at this size', 'first public implementation', 'sharp weights',
         'gains what the paper says', 'does not beat the', 'not beat the mean',
         'structured FC, as in the paper', 'Adaptive Metric, as the paper has it')
refuted = ('does not hold', 'do not hold')                     # of a claim; a theorem may

@pytest.mark.parametrize('path', [nbs.parent/'README.md', nbs.parent/'CHANGELOG.md', nbs.parent/'fcam'/'models'/'cifar_fs'/'README.md',
                                  *sorted(nbs.rglob('*.ipynb'))],
                         ids=lambda path: path.stem)
def test_verdicts_have_one_of_five_words(path):
    text = path.read_text(encoding='utf-8')
    if path.suffix == '.ipynb':
        cells = json.loads(text)['cells']
        shown = (str(o.get('data', {}).get('text/markdown', '')) + str(o.get('text', ''))
                 for cell in cells for o in cell.get('outputs', []))
        text = ''.join(''.join(cell['source']) for cell in cells) + ''.join(shown)
    about_claims = path.stem in ('README', 'index', 'all_results') or path.parts[-2] in ('tables', 'measured', 'paper')
    words = wrong + refuted*about_claims
    assert not [one for one in words if one.lower() in text.lower()]
    if path.parent.name == 'tables':
        assert set(re.findall(r'Decided by \*[^*]*\*: \*\*([^*]*)\*\*', text)) <= set(verdict_words)

@pytest.mark.parametrize('path', sorted((nbs/'paper'/'tables').glob('*.ipynb')), ids=lambda path: path.stem)
def test_pages_say_what_the_records_say(path):
    cells = json.loads(path.read_text(encoding='utf-8'))['cells']
    source = {kind: '\n'.join(''.join(cell['source']) for cell in cells if cell['cell_type'] == kind) for kind in ('code', 'markdown')}
    read = re.findall(r"read_results\('../../results/claims', '(\w+)'\)", source['code'])
    shown = ''.join(''.join(o.get('data', {}).get('text/markdown', '')) for cell in cells for o in cell.get('outputs', []))
    assert read
    for record in records.values():
        decided = next(one['claim'] for one in record['claims'] if one['primary'])
        if record['experiment'] in read: assert re.search(
            re.escape(f'{record["claim"]} Decided by *{decided}') + fr'[^*]*\*: \*\*{record["verdict"]}\*\*\.', shown)
    found = [one for record in records.values() if record['experiment'] in read
             for one in (*record['claims'], *(o for row in record['rows'] for o in row['ours'].values())) if one['half'] is not None]
    for written in re.findall(r'\d+\.\d+ ± \d+\.\d+', source['markdown']):
        digits = len(written.split(' ')[0].split('.')[1])
        assert written in {f'{abs(one["mean"]):.{digits}f} ± {one["half"]:.{digits}f}' for one in found}, written

def test_functions_of_the_pages(monkeypatch, tmp_path):
    "Columns for data sets, marks of machines and trainings, an opposite difference beside the deciding one, a figure"
    monkeypatch.syspath_prepend(nbs/'paper'/'tables')
    from pages import claims_table, declared_rows, plot_claims, read_results, result_page
    assert '| classical KL | class_temperature 1.0 | joint | own |' in declared_rows(experiments['kl_ukd'])
    results = read_results(nbs/'results'/'claims', 'kl_ukd')
    head, _, *rows = claims_table(dict(kl_ukd=results), lambda name: f'{name}.ipynb').splitlines()
    assert [cell.strip() for cell in head.strip('|').split('|')] == ['the paper says', 'decided by', *sorted(results)]
    assert rows[0].startswith('| [UniCon KL calibrates better') and '](kl_ukd.ipynb)' in rows[0] and ' ± ' in rows[0]
    assert ' ± ' not in claims_table(dict(kl_ukd=results), numbers=False)
    record = next(iter(results.values()))
    claim = next(one for one in record['claims'] if one['primary'])
    claim = claim | dict(claim='a above b', column='ms a task', verdict='shown')
    other = claim | dict(claim='c above d', primary=False, paper=1., verdict='opposite shown')
    for more, kind in ((dict(gpu=None), 'processor'), (dict(gpu='a GPU'), 'GPU')):
        one = dict(x=record | dict(claims=[claim, other], machine=record['machine'] | more))
        assert f' on a {kind}, ' in claims_table(dict(x=one))
    for text in claims_table(dict(x=one)), result_page(one): assert 'c above d (ms a task): opposite shown' in text
    assert 'Decided by *a above b (ms a task)*: **shown**. c above d' in result_page(one)
    fig = plot_claims(results, '1-shot')
    assert fig.axes[0].get_xlabel() == 'difference in 1-shot (percentage points)' and len(fig.axes) == len(results)
    for size in 'small', 'tiny': (tmp_path/f'twice-glyphs-{size}.json').write_text(json.dumps(record | dict(size=size)))
    assert {name: one['size'] for name, one in read_results(tmp_path, 'twice').items()} == {'glyphs': 'small', 'glyphs, tiny': 'tiny'}
    with pytest.raises(FileNotFoundError, match='run it by fcam_reproduce'): read_results(tmp_path, 'none')

def intervals(text):
    return {(mean, half) for mean, half in re.findall(r'(\d+\.\d+) ± (\d+\.\d+)', text)}

@pytest.mark.parametrize('path', sorted((nbs/'measured').glob('*.ipynb')), ids=lambda path: path.stem)
def test_pages_say_what_their_cells_print(path):
    "Each interval in the text of a page is one that a cell of it prints, perhaps with more digits"
    cells = json.loads(path.read_text(encoding='utf-8'))['cells']
    outputs = [o for cell in cells for o in cell.get('outputs', [])]
    printed = intervals('\n'.join(''.join(o.get('data', {}).get('text/markdown', '')) + ''.join(o.get('text', '')) for o in outputs))
    for written in intervals('\n'.join(''.join(cell['source']) for cell in cells if cell['cell_type'] == 'markdown')):
        near = [0.501*10**-len(number.split('.')[1]) for number in written]
        assert any(all(abs(float(a) - float(b)) <= far for a, b, far in zip(written, one, near)) for one in printed), written
