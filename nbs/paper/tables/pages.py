"What the pages say of an experiment: its rows before it is run; its tables and its figure after it"
import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from fcam.paper.claims import experiments
from fcam.paper.experiments import Experiment, verdict_text
from fcam.paper.report import interval_text, is_near_chance, kept_starts, markdown_table
from fcam.paper.report import report_text

def declared_rows(
    one:Experiment, # before it is run
)->str: # Markdown
    "The rows of an experiment and its claims, as they are declared"
    rows = []
    for row in one.rows:
        differs = row.settings | row.test
        settings = ', '.join(f'{name} {value}' for name, value in differs.items())
        rows.append([row.name, settings or '–', row.stage, row.rule])
    table = markdown_table(['row', 'differs by', 'measured after', 'rule'], rows)
    compared = '; '.join(f'{claim}{" (ours)"*claim.ours}' for claim in one.claims)
    return (f'{table}\n\nRule *own*: the metric that was meta-trained; *joint*: after the whole '
            'training; `soft_target none`: calibration has L_CE alone, as many epochs without soft '
            f'labels ([experiments](../experiments.ipynb)).\n\nCompared: {compared}.')

def read_results(
    folder, # that holds the JSON files of `fcam_reproduce`
    experiment:str, # its name
)->dict: # name of the data set to `Report.result`
    "The results of an experiment, data set by data set; `FileNotFoundError` where there is none"
    found = {}
    for path in sorted(Path(folder).glob(f'{experiment}-*.json')): # full before small and tiny
        name, _, size = path.stem.removeprefix(experiment + '-').rpartition('-')
        if size == 'full': name += ', published width'
        elif name in found: name += f', {size}'
        found[name] = json.loads(path.read_text(encoding='utf-8'))
    if found: return found
    raise FileNotFoundError(f'{folder} has no result of {experiment}: run it by fcam_reproduce')

def _named(claim):
    "A difference and its column"
    name, column = claim['claim'], claim['column']
    return name if column in name else f'{name} ({column})'

def in_words(
    claim:dict, # of the `claims` of a result
    mark:str='', # behind the word
)->str: # Markdown
    "The word of a difference, with its interval, and the paper's difference at this error"
    theirs = claim['paper_scaled']
    paper = '' if theirs is None else f' (paper {theirs:+.2f})'
    return f'**{verdict_text(claim)}**{mark} {interval_text(claim, "+")}{paper}'

def _worst_rival(result, claim):
    "Where the claim is about all others: the one that comes off best beside the deciding one"
    if not claim['primary'] or 'all other' not in result['claim']: return ''
    better, column = claim['claim'].split(' above ')[0], claim['column']
    others = [o for o in result['claims'] if o['claim'].startswith(f'{better} above ')
              and o['column'] == column and not (o['ours'] or o['primary'])]
    if not others: return ''
    worst = min(others, key=lambda one: one['mean'])
    return f'; {worst["claim"]}: {in_words(worst)}'

def result_page(
    results:dict, # of `read_results`
)->str: # Markdown
    "What a page says of an experiment: for each data set the command, the tables, and the verdict"
    parts = []
    for name, result in results.items():
        text = report_text(result).split('\n\n', 1)[1].strip()
        command = result.get('command_line', f'fcam_reproduce {result["experiment"]}')
        parts += [f'### On {name}', f'`{command}`, '
                  f'{result["seconds"]:.0f} s of training and measuring:', text]
        parts += [f'{result["claim"]} Decided by *{_named(o)}*: {in_words(o)}'
                  f'{_worst_rival(result, o)}.' for o in result['claims'] if o['primary']]
    return '\n\n'.join(parts)

def claims_table(
    found:dict, # name of an experiment to its `read_results`
    link:callable=None, # gives the page of an experiment; default: no links
)->str: # Markdown
    "Each claim and the difference that tests it: on each data set a word, and the interval"
    sets = sorted({data for results in found.values() for data in results},
                  key=lambda data: (not data.endswith('published width'), data))
    def cell(result, claim):
        names = re.split(' above |: ', claim['claim'])
        rows = [row for row in result['rows'] if row['name'] in names]
        mark = r'\*'*any(map(kept_starts, rows))
        n = len(result['seeds'])
        how = {1: ', one training', 3: ''}.get(n, f', {n} trainings') # 3 by default
        if claim['column'].startswith('ms '):
            how += ' on a GPU' if result['machine'].get('gpu') else ' on a processor'
        how += ', near chance'*any(map(is_near_chance, rows))
        return in_words(claim, mark) + how + _worst_rival(result, claim)
    rows = []
    for name, results in found.items():
        for one in sorted(experiments[name].claims, key=lambda one: not one.primary):
            if not (one.says or one.primary and not one.ours): continue
            tested = {data: next((o for o in result['claims'] if o['claim'] == str(one)
                                  and o['column'] == (one.column or o['column'])), None)
                      for data, result in results.items()}
            tested = {data: claim for data, claim in tested.items() if claim}
            if not tested: continue
            text = one.says or experiments[name].claim
            if link: text = f'[{text}]({link(name)})'
            rows.append([text, _named(next(iter(tested.values()))),
                         *(cell(results[data], tested[data]) if data in tested else '–'
                           for data in sets)])
    return markdown_table(['the claim', 'tested by', *sets], rows)

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
