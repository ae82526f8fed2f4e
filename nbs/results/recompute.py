"""The claims of README, word by word and number by number, computed again from the records: `python nbs/results/recompute.py`

It shares no code with the package. A record has, for each difference and training, the mean and the deviation over the tasks; from
these come differences, intervals and both tests, from its rows the paper's difference at our error, and from all that the words."""
import json
import re
import sys
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from scipy.stats import t

here = Path(__file__).resolve().parent
pages = {'divergence': 'kl_ukd', 'clusters': 'tsne', 'global_classifiers': 'global'} # page to experiment, where they differ
cell_parts = re.compile(r'(?:; (?P<claim>[^*;]+): )?\*\*(?P<word>\w+)(?P<above>, above 0)?\*\*(?:\\\*)? (?P<mean>[+-][\d.]+) ± (?P<half>[\d.]+)'
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
        if one.get('theorem'): word = 'theorem'
        found[one['claim'], one['column']] = dict(mean=mean, half=half_and_p[0], paper=paper, word=word, ours=one['ours'],
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
        said = [part.groupdict() for part in cell_parts.finditer(cell)]
        def same(one, claim, found):
            digits = len(one['half'].split('.')[1])
            numbers = [f'{found["mean"]:+.{digits}f}', f'{found["half"]:.{digits}f}', found['word'], found['above'], claim]
            paper = one['paper'] and f'{found["paper"]:+.{len(one["paper"].split(".")[1])}f}'
            return (numbers == [one['mean'], one['half'], one['word'], bool(one['above']), one['claim']]
                    and one['paper'] == paper and (one['paper'] is None) == (found['paper'] is None)
                    and (claim or (one['n'] or '3') == str(found['n']).replace('1', 'one')))
        right = cell == '–' if expected[0][1] is None else len(said) == len(expected) and all(
            same(one, *two) for one, two in zip(said, expected))
        wrong += not right
        print('as recomputed' if right else f'DIFFERS from {expected}', '|', data, '|', name, '|', cell)
    return wrong, len(cells)

if __name__ == '__main__':
    known = {path.stem: json.loads(path.read_text(encoding='utf-8')) for path in (here/'claims').glob('*.json')}
    wrong, n = mistakes((here.parents[1]/'README.md').read_text(encoding='utf-8'), known)
    print(f'{n - wrong} of {n} cells are what the records give')
    sys.exit(bool(wrong or not n))
