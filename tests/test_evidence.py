"What the records of the experiments say: anybody can recompute their intervals and verdicts"
import json
import re
import subprocess
from pathlib import Path

import pytest

from fcam.paper.claims import experiments
from fcam.paper.experiments import verdict_text, verdict_words

nbs = Path(__file__).parents[1]/'nbs'
records = {path.stem: json.loads(path.read_text(encoding='utf-8'))
           for path in sorted((nbs/'results'/'claims').glob('*.json'))}

def test_every_experiment_has_its_record():
    assert {one['experiment'] for one in records.values()} == set(experiments)

@pytest.mark.parametrize('name', records)
def test_records_say_what_follows_from_them(name, monkeypatch):
    "Each number and word of a record, by a script that shares no code with the package"
    monkeypatch.syspath_prepend(nbs/'results')
    from recompute import recomputed
    record = records[name]
    assert sum(one['primary'] for one in record['claims']) == 1 or record['size'] == 'full'
    assert all(one['difference']['deviations'] for one in record['claims'])
    assert all(part['kept'] for row in record['rows'] for part in row['trainings'])
    found = recomputed(record)
    for one in record['claims']:
        again = found[one['claim'], one['column']]
        assert (one['mean'], one['half'], one['paper_scaled']) == pytest.approx((again['mean'], again['half'], again['paper']))
        assert verdict_text(one) == again['word'] + ', above 0'*again['above']
    declared = {str(one): one for one in experiments[record['experiment']].claims}
    for one in record['claims']:                               # rows of earlier rules are ours, and declared no more
        known = declared.get(one['claim'])
        expected = (known.control, {*known.parts}, known.share(record['settings'])) if known else (None, set(), 1.)
        parts = {stage for part in one['parts'] for stage in {'meta-training': ['module', 'joint']}.get(part, [part])}   # the word up to 0.3
        assert (one['control'], parts, one['share']) == expected and (known or one['ours'])

def test_results_say_what_the_records_say(monkeypatch):
    "Each cell of the table, its controls among them, and each interval of README and Results"
    monkeypatch.syspath_prepend(nbs/'results')
    from recompute import bare_not_in_records, mistakes, not_in_records, texts
    readme, text = texts()
    wrong, n = mistakes(text, records)
    assert not wrong and n >= 50 and readme.count('±') > 10 and text.count('±') > 80
    table = text[text.index('| the claim'):]
    for before, after in (('**absent**', '**holds**'), (' ± 0.', ' ± 1.'), ('(paper +', '(paper -'), ('**not tested**', '**absent**'),
                          ('; control not run', ''), ('neither, averaged: **open** +0.32', 'neither, averaged: **open** +0.42')):
        assert mistakes(table.replace(before, after, 1), records)[0] == 1, before
    files = records | {path.stem: json.loads(path.read_text(encoding='utf-8')) for path in (nbs/'results').glob('*.json')}
    assert not not_in_records(readme + text, files) and not_in_records('1.16 ± 0.71 and 1.17 ± 0.71', files) == ['1.17 ± 0.71']
    assert not_in_records('+0.05 ± 0.48 and -0.05 ± 0.48', files) == ['-0.05 ± 0.48']
    assert not bare_not_in_records(readme, files)
    for number, other in ('77.87', '79.87'), ('73.5', '43.5'), ('2.7 below', '5.6 below'):
        assert bare_not_in_records(readme.replace(number, other, 1), files) == [other.split()[0]], number
    words = re.findall(r"\w[\w'’.-]*", re.sub(r'\]\([^)]*\)', ']', text))
    assert len(words) < 2500 and max(len(part.split()) for part in text.split('\n\n') if not part.startswith(('|', '- '))) < 150

def test_results_name_the_settings_of_the_records(monkeypatch):
    "What Results says of the small trainings in words; all its other numbers come from its cells, which read the records"
    monkeypatch.syspath_prepend(nbs/'results')
    from recompute import texts
    text, small = texts()[1], [record for record in records.values() if record['size'] == 'small']
    passes, tasks = [], []
    for record in small:
        s, n_images = record['settings'], int(re.search(r'train (\d+) images', record['data']['data'])[1])
        passes.append(s['calibration_epochs']*(s['pretrain_iters']*s['bs']/n_images if s['pretrain_iters'] else 1))
        tasks += [s[f'{stage}_epochs']*s['n_iters']*s['n_tasks_per_step'] for stage in ('module', 'joint')]
    assert f'{min(passes):.1f} to {max(passes):.1f} epochs of calibration' in text
    assert f'{min(tasks)} to {max(tasks)} tasks of meta-training a stage' in text
    assert {record['settings']['width'] for record in small} == {16, 24} and 'an encoder of width 16 (24 on Omniglot)' in text
    assert {tuple(record['settings']['n_test']) for record in small} == {(600, 200)} and '600 tasks with one shot and 200 with five' in text
    wide = json.loads((nbs/'results'/'published_width_gpu.json').read_text(encoding='utf-8'))['settings']
    n_tasks = (wide['module_epochs'] + wide['joint_epochs'])*wide['n_iters']*wide['n_tasks_per_step']
    assert f'{wide["warmup_epochs"]} epochs of warm-up, {wide["calibration_epochs"]} of calibration and {n_tasks:,} tasks' in text

def test_sentences_about_all_rows(monkeypatch):
    "What is above zero everywhere, what holds by scaling, how the gain splits: computed twice, and other records give other sentences"
    for folder in 'results', 'paper/tables': monkeypatch.syspath_prepend(nbs/folder)
    import recompute
    from pages import above_everywhere, holds_by_scaling, in_short, over_experiments, read_results, split_of_gain
    found = {name: read_results(nbs/'results'/'claims', name) for name in experiments}
    gpu, averaged = (json.loads((nbs/'results'/f'{name}.json').read_text(encoding='utf-8'))
                     for name in ('published_width_gpu', 'comparison_omniglot_averaged'))
    by_hand = {}
    for name, record in records.items():
        if record['size'] == 'small':
            for key, one in recompute.recomputed(record).items():
                if one['paper'] is not None: by_hand.setdefault((record['experiment'], *key), []).append(one)
    def above(one, record): return next(o['p_corrected'] for o in record['claims'] if o['mean'] == one['mean']) < 0.05 and one['mean'] > 0
    three = {key: [above(one, records[f'{key[0]}-{data}-small']) for one, data in zip(ones, ('cifar_fs', 'glyphs', 'omniglot'), strict=True)]
             for key, ones in by_hand.items() if len(ones) == 3}
    assert [key[1:] for key, ones in three.items() if all(ones)] == above_everywhere(found) and len(three) > 30
    assert holds_by_scaling(found) == (3, 2)
    assert over_experiments(found)['n_patches', 'cifar_fs'] > 0.05
    for column in '1-shot', '5-shot':
        parts = split_of_gain(gpu, column)
        assert {name: (one.mean, one.half) for name, one in parts.items()} == {
            name: pytest.approx(pair) for name, pair in recompute.split_of_gain(gpu, column).items()}
        whole, *rest = (one.mean for one in parts.values())
        assert whole == pytest.approx(sum(rest))
    text = in_short(found, gpu, averaged)
    assert text in recompute.texts()[1]                        # README has its numbers in fewer words
    best = next(o for o in found['comparison']['cifar_fs']['claims'] if (o['claim'], o['column']) == ('FCAM above MatchNet', '5-shot'))
    monkeypatch.setitem(best, 'p_corrected', 0.06)
    assert above_everywhere(found) != [key[1:] for key, ones in three.items() if all(ones)]
    with pytest.raises(AssertionError): in_short(found, gpu, averaged)

def test_two_versions_in_the_column_of_the_glyphs():
    of_glyphs = {name.split('-')[0]: record for name, record in records.items() if '-glyphs-' in name}
    new = {name for name, record in of_glyphs.items() if record['machine']['versions']['fcam'] >= '0.3'}
    assert new == {'comparison', 'ablation', 'cross_domain', 'global', 'tsne'}
    pixels = {name: record['fingerprints']['data'] for name, record in of_glyphs.items()}
    assert {name for name in pixels if pixels[name] == pixels['comparison']} == new | {'n_patches'} and len({*pixels.values()}) == 2

def commits(one):
    "All that a record names as its commit"
    if isinstance(one, dict):
        for key, value in one.items(): yield from [value]*bool(value) if key == 'commit' else commits(value)
    if isinstance(one, list):
        for value in one: yield from commits(value)

def test_records_name_commits_of_this_history():
    def git(*args): return subprocess.run(['git', *args], cwd=nbs.parent, capture_output=True, text=True)
    history = git('rev-parse', '--is-shallow-repository').stdout.strip() == 'false' and int(git('rev-list', '--count', 'HEAD').stdout)
    if not history or history < 100: pytest.skip('no history here, as in a copy that .ci/run makes')
    found = {commit[:40] for path in (nbs/'results').rglob('*.json') for commit in commits(json.loads(path.read_text(encoding='utf-8')))}
    assert len(found) > 10 and not [one for one in found if git('merge-base', '--is-ancestor', one, 'HEAD').returncode]

wrong = ('first public implementation', 'sharp weights',
         'gains what the paper says', 'does not beat the', 'not beat the mean',
         'structured FC, as in the paper', 'Adaptive Metric, as the paper has it')
refuted = ('does not hold', 'do not hold', 'not decided', 'opposite shown')                    # of a claim; a theorem may

@pytest.mark.parametrize('path', [nbs.parent/'README.md', nbs.parent/'CHANGELOG.md', nbs.parent/'fcam'/'models'/'cifar_fs'/'README.md',
                                  *sorted(nbs.rglob('*.ipynb'))],
                         ids=lambda path: path.stem)
def test_verdicts_have_one_of_six_words(path):
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
        assert set(re.findall(r'Decided by \*[^*]*\*: \*\*([\w ]+)', text)) <= set(verdict_words)

@pytest.mark.parametrize('path', sorted((nbs/'paper'/'tables').glob('*.ipynb')), ids=lambda path: path.stem)
def test_pages_say_what_the_records_say(path):
    cells = json.loads(path.read_text(encoding='utf-8'))['cells']
    source = {kind: '\n'.join(''.join(cell['source']) for cell in cells if cell['cell_type'] == kind) for kind in ('code', 'markdown')}
    read = re.findall(r"read_results\('../../results/claims', '(\w+)'\)", source['code'])
    shown = ''.join(''.join(o.get('data', {}).get('text/markdown', '')) for cell in cells for o in cell.get('outputs', []))
    assert read
    for record in records.values():
        for decided in record['claims']:
            if record['experiment'] in read and decided['primary']: assert re.search(
                re.escape(f'{record["claim"]} Decided by *{decided["claim"]}') + fr'[^*]*\*: \*\*{verdict_text(decided)}\*\* ', shown)
    found = [one for record in records.values() if record['experiment'] in read
             for one in (*record['claims'], *(o for row in record['rows'] for o in row['ours'].values())) if one['half'] is not None]
    for written in re.findall(r'\d+\.\d+ ± \d+\.\d+', source['markdown']):
        digits = len(written.split(' ')[0].split('.')[1])
        assert written in {f'{abs(one["mean"]):.{digits}f} ± {one["half"]:.{digits}f}' for one in found}, written

def test_functions_of_the_pages(monkeypatch, tmp_path):
    "Columns for data sets, the published width first, dashes, marks of machines and trainings, the best rival, a figure"
    monkeypatch.syspath_prepend(nbs/'paper'/'tables')
    from pages import claims_table, declared_rows, is_near_chance, plot_claims, read_results, result_page
    assert '| classical KL | class_temperature 1.0 | joint | own |' in declared_rows(experiments['kl_ukd'])
    results = read_results(nbs/'results'/'claims', 'comparison')
    record = results['omniglot']
    for size in 'full', 'small', 'tiny': (tmp_path/f'comparison-glyphs-{size}.json').write_text(json.dumps(record | dict(size=size)))
    sizes = read_results(tmp_path, 'comparison')
    assert {name: one['size'] for name, one in sizes.items()} == {'glyphs, published width': 'full', 'glyphs': 'small', 'glyphs, tiny': 'tiny'}
    with pytest.raises(FileNotFoundError, match='run it by fcam_reproduce'): read_results(tmp_path, 'none')
    found = dict(comparison=sizes, kl_ukd=read_results(nbs/'results'/'claims', 'kl_ukd'))
    head, _, *rows = ([cell.strip() for cell in line.strip('|').split(' | ')] for line in claims_table(found, lambda name: f'{name}.ipynb').splitlines())
    assert head[2] == 'glyphs, published width' and {'cifar_fs', 'glyphs', 'omniglot'} <= {*head}
    assert rows[0][0].endswith('](comparison.ipynb)') and rows[0][2].startswith('**holds**') and '; FCAM above MCL: **reversed** -0.262 ± 0.085' in rows[0][2]
    assert rows[1][2] == '–' and rows[1][0].startswith('[UniCon KL calibrates better')
    for name, on in (('glyphs', ' on a processor'), ('omniglot', ' on a GPU')):
        assert f'{on} |' in claims_table(dict(n_patches={name: read_results(nbs/'results'/'claims', 'n_patches')[name]}))
    assert '**reversed** -0.262 ± 0.085 (paper +0.24).' in result_page(results)
    for (one, five, cost), wanted in (((24.9, 40, 9), True), ((25., 40, 9), False), ((90, 24, 9), True)):
        assert is_near_chance(dict(ours={'1-shot': dict(mean=one), '5-shot': dict(mean=five), 'ms a task': dict(mean=cost)})) == wanted
    fig = plot_claims(results, '1-shot')
    assert fig.axes[0].get_xlabel() == 'difference in 1-shot (percentage points)' and len(fig.axes) == len(results)

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
