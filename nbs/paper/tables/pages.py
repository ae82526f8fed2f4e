"What the pages say of an experiment: its rows before it is run; its tables and its figure after it"
import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from fcam.paper.experiments import Experiment
from fcam.paper.report import interval_text, kept_starts, markdown_table, number_text, report_text

def declared_rows(
    one:Experiment, # before it is run
)->str: # Markdown
    "The rows of an experiment and its claims, as they are declared"
    rows = []
    for row in one.rows:
        differs = row.settings | row.test
        if row.network == 'student': differs |= dict(network='student')
        settings = ', '.join(f'{name} {value}' for name, value in differs.items())
        rows.append([row.name, settings or '–', row.stage, row.rule])
    table = markdown_table(['row', 'differs by', 'measured after', 'rule'], rows)
    compared = '; '.join(f'{claim}{" (ours)"*claim.ours}' for claim in one.claims)
    return (f'{table}\n\nRule *own*: the metric that was meta-trained; *joint*: after the whole '
            'training; `soft_target none`: calibration has L_CE alone, as many epochs without soft '
            'labels; `network student`: what follows begins with the student and not with its '
            f'average ([experiments](../experiments.ipynb)).\n\nCompared: {compared}.')

def read_results(
    folder, # that holds the JSON files of `fcam_reproduce`
    experiment:str, # its name
)->dict: # name of the data set to `Report.result`
    "The results of an experiment, data set by data set; `FileNotFoundError` where there is none"
    found = {}
    for path in sorted(Path(folder).glob(f'{experiment}-*.json')): # full before small and tiny
        data, _, size = path.stem.removeprefix(experiment + '-').rpartition('-')
        name = f'{data}, {size}' if data in found else data
        found[name] = json.loads(path.read_text(encoding='utf-8'))
    if found: return found
    raise FileNotFoundError(f'{folder} has no result of {experiment}: run it by fcam_reproduce')

def _named(claim):
    "A difference and its column"
    name, column = claim['claim'], claim['column']
    return name if column in name else f'{name} ({column})'

def _against(result, claim):
    "The paper's other differences whose opposite was shown, where that of the deciding was not"
    if not claim['primary'] or claim['verdict'] == 'opposite shown': return ''
    names = [_named(o) for o in result['claims']
             if not o['primary'] and o['paper'] is not None and o['verdict'] == 'opposite shown']
    return f'{", ".join(names)}: opposite shown'*bool(names)

def _decided(result):
    "The deciding difference with its verdict; then others of the paper whose opposite was shown"
    for o in result['claims']:
        if not o['primary']: continue
        yield f'Decided by *{_named(o)}*: **{o["verdict"]}**.'
        if against := _against(result, o): yield f'{against}.'

def result_page(
    results:dict, # of `read_results`
)->str: # Markdown
    "What a page says of an experiment: for each data set the command, the tables, and the verdict"
    parts = []
    for name, result in results.items():
        text = report_text(result).split('\n\n', 1)[1].strip()
        command = result.get('command_line', f'fcam_reproduce {result["experiment"]}')
        parts += [f'### On {name}', f'`{command}`, '
                  f'{result["seconds"]:.0f} s of training and measuring:', text,
                  f'{result["claim"]} ' + ' '.join(_decided(result))]
    return '\n\n'.join(parts)

def claims_table(
    found:dict, # name of an experiment to its `read_results`
    link:callable=None, # gives the page of an experiment; default: no links
    numbers:bool=True, # with the size of each difference; without, the words alone
)->str: # Markdown
    "What the paper claims, by which difference it was decided, and the verdict on each data set"
    sets = sorted({data for results in found.values() for data in results})
    def cell(result, key, column):
        claim = next((o for o in result.get('claims', ())
                      if (o['claim'], o['column']) == (key, column)), None)
        if not claim: return '–'
        names = re.split(' above |: ', key)
        mark = r'\*'*any(kept_starts(row) for row in result['rows'] if row['name'] in names)
        n = len(result['seeds'])
        mark += {1: ' (one training)', 3: ''}.get(n, f' ({n} trainings)') # 3 by default
        if column.startswith('ms '):
            mark += ' on a GPU' if result['machine'].get('gpu') else ' on a processor'
        against = _against(result, claim)
        end = f'; {against}' if against else ''
        if not numbers: return claim['verdict'] + mark + end
        text = f'**{claim["verdict"]}**{mark}, {interval_text(claim, "+")}'
        theirs = claim['paper_scaled']
        if theirs is not None:
            inside = (claim['verdict'] == 'level' and
                      abs(theirs - claim['mean']) <= claim['half'])
            text += f' (paper {number_text(theirs, "+")}' + ', inside the interval'*inside + ')'
        return text + end
    rows = []
    for name, results in found.items():
        first = next(iter(results.values()))
        for one in sorted(first['claims'], key=lambda one: not one['primary']):
            if not (one['primary'] or one['says']): continue
            text, key, column = one['says'] or first['claim'], one['claim'], one['column']
            if link: text = f'[{text}]({link(name)})'
            cells = [cell(results.get(data, {}), key, column) for data in sets]
            rows.append([text, _named(one), *cells])
    return markdown_table(['the paper says', 'decided by', *sets], rows)

def plot_claims(
    results:dict, # of `read_results`
    column:str=None, # of which the claims are drawn; default: the first claim's
)->Figure:
    "The difference of each claim, a panel a data set; `ValueError` where none is about the column"
    column = column or next((claim['column'] for result in results.values()
                             for claim in result['claims']), None)
    drawn = {name: {claim['claim']: claim for claim in result['claims']
                    if claim['column'] == column} for name, result in results.items()}
    names = list(dict.fromkeys(claim for claims in drawn.values() for claim in claims))
    if not names: raise ValueError(f'no claim is about {column!r}')
    fig, axes = plt.subplots(1, len(drawn), figsize=(4 + 3*len(drawn), 0.9 + 0.4*len(names)),
                             layout='constrained', sharey=True, squeeze=False, dpi=64)
    for ax, (data, claims) in zip(axes[0], drawn.items()):
        for y, claim in ((names.index(name), claim) for name, claim in claims.items()):
            ax.errorbar(claim['mean'], y, xerr=claim['half'] or 0, fmt='o', color='tab:blue')
            means = claim['difference']['means']
            ax.plot(means, [y + 0.2]*len(means), '.', color='tab:gray')
            if claim['paper_scaled'] is not None: ax.plot(claim['paper_scaled'], y, 'D',
                                                          mfc='none', color='tab:orange')
        ax.axvline(0, color='black', lw=0.8)
        ax.set_title(data, fontsize=9)
        unit = ' (percentage points)' if 'shot' in column or 'after' in column else ''
        ax.set(xlabel=f'difference in {column}{unit}', ylim=(len(names) - 0.5, -0.5))
    axes[0, 0].set_yticks(range(len(names)), names, fontsize=8)
    plt.close(fig)
    return fig

def plot_features(
    features, # `(n_images, n_features)` tensor
    labels, # `(n_images,)` tensor
    ax, # where to draw
): # the axes
    "Features by scikit-learn's t-SNE, a colour a class"
    from sklearn.manifold import TSNE
    points = TSNE(perplexity=15, random_state=0, init='pca').fit_transform(features.numpy())
    for label in labels.unique(): ax.scatter(*points[(labels == label).numpy()].T, s=8)
    ax.set(xticks=[], yticks=[])
    return ax
