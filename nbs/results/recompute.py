"""The claims of Results, word by word and number by number, computed again from the records: `python nbs/results/recompute.py`

It shares no code with the package. A record has, for each difference and training, the mean and the deviation over the tasks; from
these come differences, intervals and both tests, from its rows the paper's difference at our error, and from all that the words; from
its settings, which claims were not tested. The gain of both parts at the published width is split by the answers of each task. Each
interval of README and Results is looked for by its value, in all records; numbers without one only in README's part for researchers: those
of Results come from cells that read the records, but for the settings in its Method, which a test compares."""
import json
import re
import sys
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from scipy.stats import t

here = Path(__file__).resolve().parent
pages = {'divergence': 'kl_ukd', 'clusters': 'tsne', 'global_classifiers': 'global'} # page to experiment, where they differ
cell_parts = re.compile(r'(?:; (?P<claim>[^*;]+): )?\*\*(?P<word>not tested|\w+)(?P<above>, above 0)?\*\*(?:\\\*)? (?P<mean>[+-][\d.]+) ± (?P<half>[\d.]+)'
                        r'(?: \(paper (?P<paper>[+-][\d.]+)\))?(?:, (?P<n>one|\d+) trainings?)?')

def tested(difference, value):
    "Half of the 95 % interval, and the p-value of `value`: of the tests over the trainings and over all tasks, what says less"
    means, deviations, n_tasks = (difference[name] for name in ('means', 'deviations', 'n_tasks'))
    n, errors = len(means), []
    if n > 2: errors.append((stdev(means)/sqrt(n), n - 1))
    if n > 2 or difference['same_encoder']:
        errors.append((sqrt(sum(s*s/k for s, k in zip(deviations, n_tasks)))/n, sum(n_tasks) - n))
    far = abs(fmean(means) - value)
    halves = [float(t.ppf(0.975, freedom))*error for error, freedom in errors]
    p_values = [2*float(t.sf(far/error, freedom)) if error else float(far == 0) for error, freedom in errors]
    return max(halves, default=None), max(p_values, default=None)

def of_paper(record, claim):
    "The paper's difference, for an accuracy as the same share of the error here; None where it has no number"
    rows = {row['name']: row for row in record['rows']}
    if ': ' in claim['claim']:                                 # one row in two columns
        row, columns = claim['claim'].split(': ', 1)
        cells = [(row, column) for column in columns.split(' above ')]
    else: cells = [(row, claim['column']) for row in claim['claim'].split(' above ')]
    numbers = [rows[row]['paper'].get(column) for row, column in cells]
    if None in numbers: return None
    share = 1.
    if re.search('shot|after', claim['column']):
        row, column = cells[1]
        share = (100 - rows[row]['ours'][column]['mean'])/(100 - numbers[1])
    return (numbers[0] - numbers[1])*share

def corrected(p_values):
    "By Holm, among those that are known"
    ranked = sorted(p for p in p_values if p is not None)
    found = [min(1, p*(len(ranked) - i)) for i, p in enumerate(ranked)]
    return [p if p is None else max(found[:ranked.index(p) + 1]) for p in p_values]

def share_of_steps(record, parts):
    "Of the paper's: 240 epochs of 300 steps of calibration, 200 of 50 of meta-training, the module alone and jointly; the smaller"
    s = record['settings']
    steps = {'calibration': (s['calibration_epochs']*(s['pretrain_iters'] or 300), 72_000),
             'joint': ((s['module_epochs'] + s['joint_epochs'])*s['n_iters'], 10_000)}
    steps['meta-training'] = steps['module'] = steps['joint']      # records of version 0.3 have the first word
    return min([done/paper for done, paper in (steps[part] for part in parts)], default=1)

def recomputed(record):
    "Each difference by its name and column: mean, half of the interval, the paper's, and the word"
    claims, found = record['claims'], {}
    papers = [of_paper(record, one) for one in claims]
    tests = [(tested(one['difference'], 0.), tested(one['difference'], paper or 0.)[1] if paper is not None else None)
             for one, paper in zip(claims, papers)]
    explored = [i for i, one in enumerate(claims) if not one['primary']]
    zero, theirs = [half_and_p[1] for half_and_p, _ in tests], [p for _, p in tests]
    for p_values in zero, theirs:
        for i, p in zip(explored, corrected([p_values[i] for i in explored])): p_values[i] = p
    for one, paper, (half_and_p, _), p, p_paper in zip(claims, papers, tests, zero, theirs):
        mean = fmean(one['difference']['means'])
        above, below = (p is not None and p < 0.05 and sign*mean > 0 for sign in (1, -1))
        under_paper = p_paper is not None and p_paper < 0.05 and mean < paper
        word = 'reversed' if below else 'open' if paper is None else [['open', 'absent'], ['holds', 'smaller']][above][under_paper]
        if one['parts'] and share_of_steps(record, one['parts']) < 0.1: word = 'not tested'
        if one.get('theorem'): word = 'theorem'
        found[one['claim'], one['column']] = dict(mean=mean, half=half_and_p[0], paper=paper, word=word, ours=one['ours'], control=one['control'],
                                                  above=above and word == 'open', n=len(one['difference']['means']))
    return found

def told(text):
    "Each cell of the table of claims: experiment, name and column of the difference, data set, what the cell says"
    header, lines = [], (line.strip('| ').split(' | ') for line in text.splitlines() if line.startswith('|'))
    for line in lines:
        if line[:2] == ['the claim', 'tested by']: header = line[2:]
        elif header and (page := re.search(r'paper/tables/(\w+)\.ipynb', line[0])):
            name, _, column = line[1].rpartition(' (') if line[1].endswith(')') else (line[1], '', '')
            for data, cell in zip(header, line[2:], strict=True):
                size = 'full' if data.endswith(', published width') else 'small'
                yield pages.get(page[1], page[1]), name, column.strip(')'), f'{data.split(",")[0]}-{size}', cell

def mistakes(text, records):
    "Prints each cell beside what the records give, and returns how many differ; and how many there are"
    wrong, cells = 0, [*told(text)]
    for experiment, name, column, data, cell in cells:
        known = recomputed(records[f'{experiment}-{data}']) if f'{experiment}-{data}' in records else {}
        if not column: column = next((c for claim, c in known if claim == name), '')
        expected = [(None, known.get((name, column)))]
        if 'comparison' in experiment or 'cross_domain' in experiment: # and the rival that comes off best
            others = {claim: one for (claim, c), one in known.items() if c == column and claim.startswith('FCAM above ')
                      and claim != name and not one['ours']}
            expected += [(worst, others[worst]) for worst in sorted(others, key=lambda claim: others[claim]['mean'])[:1]]
        control = expected[0][1] and expected[0][1]['control']         # the same but for the part that the claim is about
        if control:
            control = f'{name.split(" above ")[0]} above {control}'
            if (control, column) in known: expected.append((control, known[control, column]))
        said = [part.groupdict() for part in cell_parts.finditer(cell)]
        def same(one, claim, found):
            digits = len(one['half'].split('.')[1])
            numbers = [f'{found["mean"]:+.{digits}f}', f'{found["half"]:.{digits}f}', found['word'], found['above'], claim]
            paper = one['paper'] and f'{found["paper"]:+.{len(one["paper"].split(".")[1])}f}'
            return (numbers == [one['mean'], one['half'], one['word'], bool(one['above']), one['claim']]
                    and one['paper'] == paper and (one['paper'] is None) == (found['paper'] is None)
                    and (claim or (one['n'] or '3') == str(found['n']).replace('1', 'one')))
        right = cell == '–' if expected[0][1] is None else len(said) == len(expected) and all(
            same(one, *two) for one, two in zip(said, expected)) and bool(control and len(expected) == 1) == ('control not run' in cell)
        wrong += not right
        print('as recomputed' if right else f'DIFFERS from {expected}', '|', data, '|', name, '|', cell)
    return wrong, len(cells)

def split_of_gain(gpu, column):
    "Both parts above neither at the published width, on the same tasks: averaging, soft labels, and the metric (each minus its cosine)"
    rows = {name: [[int(n)/0.75 for n in one['right'][column].split(',')] for one in trainings] for name, trainings in gpu['rows'].items()}
    averaged, soft = 'L_CE alone, averaged', 'soft labels, teacher'
    parts = dict(whole={'both': 1, 'neither': -1}, averaging={averaged: 1, 'warm-up': -1}, soft_labels={soft: 1, averaged: -1},
                 metric={'both': 1, soft: -1, 'neither': -1, 'warm-up': 1})
    def difference(signs):
        trainings = [[sum(values) for values in zip(*([sign*v for v in rows[name][i]] for name, sign in signs.items()))] for i in range(4)]
        of_all = dict(means=[*map(fmean, trainings)], deviations=[*map(stdev, trainings)], n_tasks=[*map(len, trainings)], same_encoder=False)
        return fmean(of_all['means']), tested(of_all, 0.)[0]
    return {name: difference(signs) for name, signs in parts.items()}

def known_intervals(files):
    "Each mean with its interval, in all records: fields of that name, pairs of numbers, the split of the gain, and two differences from single rows"
    found = [pair for column in ('1-shot', '5-shot') for pair in split_of_gain(files['published_width_gpu'], column).values()]
    weights = {row['name']: row['ours']['1-shot']['per_seed'] for row in files['weights-glyphs-small']['rows']}
    added = [theirs - papers for theirs, papers in zip(weights["DeepEMD's weights"], weights['weights (1, 0)'], strict=True)]
    n = len(added)
    found.append((fmean(added), tested(dict(means=added, deviations=[0]*n, n_tasks=[2]*n, same_encoder=False), 0.)[0]))
    rows = files['published_width_module']['rows']
    fixed = next(name for name in rows if name.startswith('best fixed eps'))
    for column in '1-shot', '5-shot':                          # the module alone and the best fixed eps, on the same tasks
        right = ([int(n)/0.75 for n in rows[name][column].split(',')] for name in ('Modulate Module, last', fixed))
        added = [a - b for a, b in zip(*right, strict=True)]
        found.append((fmean(added), tested(dict(means=[fmean(added)], deviations=[stdev(added)], n_tasks=[len(added)], same_encoder=True), 0.)[0]))
    def walk(one):
        if isinstance(one, dict):
            half = one.get('half', one.get('ci95'))
            if 'mean' in one and half is not None: found.append((one['mean'], half))
            if {'means', 'deviations', 'n_tasks'} <= one.keys(): found.append((fmean(one['means']), tested(one, 0.)[0]))
            for value in one.values(): walk(value)
        elif isinstance(one, list):
            if len(one) == 2 and all(isinstance(value, float) for value in one): found.append(tuple(one))
            for value in one: walk(value)
    walk(files)
    return [(mean, half) for mean, half in found if half is not None]

def not_in_records(text, files):
    "Intervals of a text, such as 1.16 ± 0.71, that are in no record, however rounded, with a sign only as they have it there"
    known = known_intervals(files)
    def is_known(sign, mean, half):
        digits = [len(number.split('.')[1]) for number in (mean, half)]
        return any(f'{a if sign else abs(a):{"+" if sign else ""}.{digits[0]}f}' == sign + mean and f'{b:.{digits[1]}f}' == half
                   for a, b in known)
    return [f'{sign}{mean} ± {half}' for sign, mean, half in re.findall(r'([+-]?)(\d+\.\d+) ± (\d+\.\d+)', text)
            if not is_known(sign, mean, half)]

def bare_not_in_records(readme, files):
    "Numbers with a point and without an interval in README's part for researchers, but those of the records that it is made of"
    part = readme.split('## For researchers')[1].split('\n## ')[0]
    bare = re.findall(r'\d+\.\d+', re.sub(r'[+-]?\d+\.\d+ ± \d+\.\d+|\]\([^)]*\)|arXiv \S+', '', part))
    right = files['published_width_gpu']['rows']['student, averaged'][0]['right'].values()
    known = [fmean(int(n)/0.75 for n in one.split(',')) for one in right]
    known += [one['mean'] for row in files['ablation-cifar_fs-full']['rows'] for one in row['ours'].values()]
    known += [one for method in files['published']['methods'].values() for one in method.get('cifar_fs', [])]
    known += [abs(one['mean']) for name in ('comparison-glyphs-small', 'comparison_omniglot_averaged') for one in files[name]['claims']]
    known += [one['paper_scaled'] for one in files['modulate_module-cifar_fs-full']['claims']]
    return [number for number in bare if not any(f'{one:.{len(number.split(".")[1])}f}' == number for one in known)]

def texts():
    "README, and what Results says: its text and what its cells print"
    cells = json.loads((here.parent/'all_results.ipynb').read_text(encoding='utf-8'))['cells']
    shown = [''.join(cell['source']) for cell in cells if cell['cell_type'] == 'markdown']
    shown += [''.join(o.get('data', {}).get('text/markdown', '')) for cell in cells for o in cell.get('outputs', [])]
    return (here.parents[1]/'README.md').read_text(encoding='utf-8'), '\n\n'.join(shown)

if __name__ == '__main__':
    known = {path.stem: json.loads(path.read_text(encoding='utf-8')) for path in (here/'claims').glob('*.json')}
    files = known | {path.stem: json.loads(path.read_text(encoding='utf-8')) for path in here.glob('*.json')}
    readme, results = texts()
    wrong, n = mistakes(results, known)
    lost = not_in_records(readme + results, files) + bare_not_in_records(readme, files)
    print(f'{n - wrong} of {n} cells are what the records give; numbers in no record: {lost or "none"}')
    sys.exit(bool(wrong or not n or lost))
