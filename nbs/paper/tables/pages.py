"What the pages say of an experiment: its rows before it is run; its tables and its figure after it"
import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from matplotlib.transforms import blended_transform_factory as blend

from fcam.paper.claims import experiments
from fcam.paper.experiments import Claim, Difference, Experiment, holm, paired_difference
from fcam.paper.experiments import verdict, verdict_text
from fcam.paper.report import interval_text, kept_starts, markdown_table, report_text

def declared_rows(
    one:Experiment, # before it is run
)->str: # Markdown
    "The rows of an experiment and its claims, as they are declared"
    rows = []
    for row in one.rows:
        differs = row.settings | row.test
        settings = ', '.join(f'{name} {value}' for name, value in differs.items())
        rows.append([row.name, settings or '–', row.stage + ', student'*row.student, row.rule])
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

def _control(result, claim):
    "Where the claim has a control: the difference from it, of the same column"
    if not claim['control']: return ''
    name = f'{claim["claim"].split(" above ")[0]} above {claim["control"]}'
    found = (o for o in result['claims'] if (o['claim'], o['column']) == (name, claim['column']))
    control = next(found, None)
    return f'; {name}: {in_words(control)}' if control else '; control not run'

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
                  f'{_worst_rival(result, o)}{_control(result, o)}.' for o in result['claims'] if o['primary']]
    return '\n\n'.join(parts)

def _sets(found):
    "Names of all data sets, the published width first"
    return sorted({data for results in found.values() for data in results},
                  key=lambda data: (not data.endswith('published width'), data))

def declared(
    found:dict, # name of an experiment to its `read_results`
): # of `(experiment, Claim, {data set: claim of a result})`, the deciding one first
    "The claims that have a line of their own: one that decides, or of which something is said"
    for name, results in found.items():
        for one in sorted(experiments[name].claims, key=lambda one: not one.primary):
            if not (one.says or one.primary and not one.ours): continue
            tested = {data: next((o for o in result['claims'] if o['claim'] == str(one)
                                  and o['column'] == (one.column or o['column'])), None)
                      for data, result in results.items()}
            if any(tested.values()): yield name, one, {k: o for k, o in tested.items() if o}

def is_above(claim):
    "Whether a difference is above zero, after the correction"
    return claim['mean'] > 0 and claim['p_corrected'] is not None and claim['p_corrected'] < 0.05

def above_everywhere(
    found:dict, # name of an experiment to its `read_results`
)->list: # of `(difference, column)`
    "The differences for which the paper has a number that are above zero on all small data sets"
    words = {}
    for name, results in found.items():
        for data, result in results.items():
            if data.endswith('published width'): continue
            for o in result['claims']:
                if o['paper'] is not None: words.setdefault(
                    (name, o['claim'], o['column']), []).append(is_above(o))
    return [name[1:] for name, above in words.items() if len(above) == 3 and all(above)]

def holds_by_scaling(
    found:dict, # name of an experiment to its `read_results`
)->tuple: # how many of the declared claims hold, and how many of these are smaller in points
    "What the scaling of the paper's differences to the error here decides"
    holding = [o for _, _, tested in declared(found) for o in tested.values()
               if verdict(o) == 'holds']
    def in_points(o): return Difference(*o['difference'].values()).p_of(o['paper'])
    return len(holding), sum(o['mean'] < o['paper'] and in_points(o) < 0.05 for o in holding)

def split_of_gain(
    gpu:dict, # of `results/published_width_gpu.json`
    column:str, # '1-shot' or '5-shot'
)->dict: # name to `Difference`; the last three add up to the first
    "How the gain of both parts at the published width splits, on the same tasks"
    rows = {name: [torch.tensor([*map(float, one['right'][column].split(','))]).double()/0.75
                   for one in rows]
            for name, rows in gpu['rows'].items() if len(rows) > 1}
    def added(*signs): return [sum(s*rows[name][i] for name, s in signs)
                               for i in range(len(rows['both']))]
    warm, averaged, soft = 'warm-up', 'L_CE alone, averaged', 'soft labels, teacher'
    parts = dict(whole=(('both', 1), ('neither', -1)), averaging=((averaged, 1), (warm, -1)),
                 soft_labels=((soft, 1), (averaged, -1)),
                 metric=(('both', 1), (soft, -1), ('neither', -1), (warm, 1)))
    return {name: paired_difference(values := added(*signs), [0*o for o in values])
            for name, signs in parts.items()}

def meta_tasks(
    gpu:dict, # of `results/published_width_gpu.json`
)->tuple: # of exact transport, and of the Modulate Module with the metric
    "Tasks of meta-training that the two rows of the gain at the published width had"
    s = gpu['settings']
    return tuple(epochs*s['n_iters']*s['n_tasks_per_step'] for epochs in
                 (s['joint_epochs'], s['module_epochs'] + s['joint_epochs']))

def is_near_chance(
    row:dict, # of the `rows` of a result
)->bool:
    "Whether it has an accuracy below 25 %, where chance has 20 % of five classes"
    return any(one['mean'] < 25 for name, one in row['ours'].items()
               if name.endswith('-shot') or name.startswith('after '))

def claims_table(
    found:dict, # name of an experiment to its `read_results`
    link:callable=None, # gives the page of an experiment; default: no links
)->str: # Markdown
    "Each claim and the difference that tests it: on each data set a word, and the interval"
    sets = _sets(found)
    def cell(name, result, claim):
        names = re.split(' above |: ', claim['claim'])
        rows = [row for row in result['rows'] if row['name'] in names]
        mark = r'\*'*any(map(kept_starts, rows))
        n = len(result['seeds'])
        how = {1: ', one training', 3: ''}.get(n, f', {n} trainings') # 3 by default
        if claim['column'].startswith('ms '):
            how += ' on a GPU' if result['machine'].get('gpu') else ' on a processor'
        how += ', near chance'*any(map(is_near_chance, rows))
        earlier = result['machine']['versions']['fcam'] < '0.3'
        how += ', rivals not averaged'*(earlier and name in ('comparison', 'cross_domain'))
        return in_words(claim, mark) + how + _worst_rival(result, claim) + _control(result, claim)
    rows = []
    for name, one, tested in declared(found):
        text = one.says or experiments[name].claim
        if link: text = f'[{text}]({link(name)})'
        rows.append([text, _named(next(iter(tested.values()))),
                     *(cell(name, found[name][data], tested[data]) if data in tested else '–'
                       for data in sets)])
    return markdown_table(['the claim', 'tested by', *sets], rows)

def over_experiments(
    found:dict, # name of an experiment to its `read_results`
    all_of_them:bool=False, # those too whose parts were not tested
)->dict: # `(experiment, data set)` to the p-value of zero
    "The differences that decide an experiment, corrected for their number"
    deciding = {(name, data): o['p'] for name, results in found.items()
                for data, result in results.items() for o in result['claims']
                if o['primary'] and verdict(o) not in ('not tested'*(not all_of_them), 'theorem')}
    return dict(zip(deciding, holm([*deciding.values()])))

def in_short(
    found:dict, # name of an experiment to its `read_results`
    gpu:dict, # of `results/published_width_gpu.json`
    averaged:dict, # of `results/comparison_omniglot_averaged.json`
)->str: # Markdown
    "How far the claims hold: what was tried, what holds, what does not, and what was not tested"
    def far(data, claim, word, column='1-shot', name='comparison'):
        one = next(o for o in found[name][data]['claims']
                   if (o['claim'], o['column']) == (claim, column))
        assert verdict_text(one) == word, (claim, verdict_text(one))
        return f'{abs(one["mean"]):.1f}'
    patches = 'Adaptive Metric, 25 patches above Adaptive Metric, 9 patches', '1-shot'
    match = 'FCAM above MatchNet', '5-shot'
    assert above_everywhere(found) == [match, patches]
    words = {(o['claim'], o['column'], data): verdict(o) for name in ('comparison', 'n_patches')
             for data, one in found[name].items() for o in one['claims']}
    small = 'cifar_fs', 'glyphs', 'omniglot'
    assert [[words[(*key, data)] for data in small] for key in (
        match, patches)] == [['smaller']*3, ['smaller', 'holds', 'holds']]
    tested, deciding = over_experiments(found), over_experiments(found, all_of_them=True)
    assert [[p['n_patches', data] < 0.05 for data in small] for p in (tested, deciding)] == [
        [False, True, True], [False]*3]
    rivals = {o['claim'].removeprefix('FCAM above '): verdict(o) for o in
              found['comparison']['glyphs']['claims'] if o['claim'].startswith('FCAM above ')
              and o['column'] == '1-shot' and not o['ours']}
    assert {name for name, word in rivals.items() if word != 'reversed'} == {'ProtoNet'}
    rows = {row['name']: [[mean] for mean in row['ours']['1-shot']['per_seed']]
            for row in found['weights']['glyphs']['rows']}
    of_theirs = paired_difference(rows["DeepEMD's weights"], rows['weights (1, 0)'])
    alone = found['modulate_module']['cifar_fs, published width']
    whole = [one for results in found.values() for one in results.values() if one is not alone]
    assert {verdict(o) for one in whole for o in one['claims'] if o['parts']} == {'not tested'}
    calibration, meta = (max(Claim('one', 'other', parts=(stage,)).share(one['settings'])
                             for one in whole) for stage in ('calibration', 'joint'))
    assert [verdict(o) for o in alone['claims']] == ['smaller', 'smaller']
    deciding_one, _ = alone['claims']
    module = f'{deciding_one["mean"]:.2f} ± {deciding_one["half"]:.2f}'
    theirs = f'{deciding_one["paper_scaled"]:.1f}'
    one, five = ({name: f'{o.mean:+.2f} ± {o.half:.2f}' for name, o in split_of_gain(
        gpu, column).items()} for column in ('1-shot', '5-shot'))
    exact, all_tasks = meta_tasks(gpu)
    of_weights = 'EMD, weights (1, 0), features of FCAM above DeepEMD v2, features of FCAM'
    below_rule = far('glyphs', of_weights, 'reversed')
    ours = far('glyphs', 'FCAM (8, 4) above DeepEMD v2', 'open, above 0')
    of_all = {(o['claim'].removeprefix('FCAM above '), o['column']): o for o in averaged['claims']}
    beside = {key: verdict(o) for key, o in of_all.items() if not o['ours']}
    assert beside['DeepEMD v2', '1-shot'] == beside['Meta-Baseline', '5-shot'] == 'smaller'
    above_deepemd, above_baseline = (f'{of_all[key]["mean"]:.1f}' for key in (
        ('DeepEMD v2', '1-shot'), ('Meta-Baseline', '5-shot')))
    under = {name: -of_all[name, column]['mean'] for (name, column), word in beside.items()
             if word == 'reversed' and column == '1-shot'}
    assert [*under] == ['MatchNet', 'Meta-Baseline', 'FRN', 'MCL']
    for data in small[:2]: far(data, 'FCAM above Meta-Baseline', 'absent', '5-shot')
    far('cifar_fs', 'FCAM above DeepEMD v2', 'absent')
    for data in small: far(data, 'FCAM above DeepEMD v2', 'absent', name='cross_domain')
    of_labels = far('glyphs', 'soft labels, teacher above hard labels on all crops, averaged',
                    'reversed', name='hard_labels')
    below_deepemd = far('glyphs', 'FCAM above DeepEMD v2', 'reversed')
    return f'''- *What was tried.* Each claim is one difference of two rows on the same tasks, over
  three to eight trainings of a small network on CIFAR-FS, drawn letters (*glyphs*) and Omniglot;
  both parts and soft labels also over four trainings at the paper's width, the module over one.
- *What is above zero.* 25 patches are more accurate than nine on all three data sets: after
  correction for the {len(tested)} deciding differences that were tested, on the glyphs and
  Omniglot; for all {len(deciding)}, on none. With five shots FCAM is above Matching Networks on all
  three, by less than in the paper, and above Meta-Baseline on Omniglot alone, by {above_baseline}.
  With one it is {above_deepemd} above DeepEMD on Omniglot, also by less. The Modulate
  Module alone, with the paper's width, 25 patches and a fifth of its tasks, is {module} points
  above a fixed eps of 0.1 ({theirs} expected), in [one training](#the-modulate-module). It gives
  all pairs one eps, within 0.02 points of the best fixed.
- *What is not.* FCAM is not seen above DeepEMD on CIFAR-FS and in another domain. With one shot it
  is on the glyphs below all tested rivals but ProtoNet, {below_deepemd} points below DeepEMD, and
  on Omniglot {min(under.values()):.1f} to {max(under.values()):.1f} below all but ProtoNet and
  DeepEMD. Soft labels are {of_labels} below the image's own label, on as many crops and averaged
  too, on the glyphs.
- *What was not tested.* Whether the parts do in the whole method what the paper says: at its width
  they had {100*calibration:.3g} % of its calibration and {100*meta:.3g} % of meta-training, in
  the small trainings a hundredth at most, for want of a GPU.
- *Why there is a gain.* At the paper's width FCAM is {one['whole'][1:]} points above exact
  transport after the cross entropy alone, with one shot. That is a sum: 15 epochs more with
  averaged weights, {one['averaging']}, by the means most of it; soft labels beyond that,
  {one['soft_labels']} (their teacher averages weights as well); and the metric's gain over the
  cosine beyond that of exact transport, {one['metric']}. (With five shots {five['whole'][1:]} is
  the sum of {five['averaging']}, {five['soft_labels']} and {five['metric']}.) Exact transport had
  {exact:,} tasks, FCAM {all_tasks:,}; calibration sees four crops an image, averaging one.
- *Why there is a loss.* On the glyphs most of it is the weights of the patches, (15) and (16): with
  DeepEMD's in their place the same metric has {of_theirs.mean:.1f} ± {of_theirs.half:.1f} more, in
  three trainings. (Exact transport with (15), (16) is {below_rule} below DeepEMD's rule on the same
  features; that rule also centres its cost.) With weights of ours, (8, 4), and nine patches the
  method is {ours} above DeepEMD with nine there, against 25 perhaps level.'''

def plot_all_claims(
    found:dict, # name of an experiment to its `read_results`
)->Figure:
    "Each claim about an accuracy: the difference, the paper's as a tick, and the control below it"
    sets = _sets(found)
    lines = [(one, tested) for name, one, tested in declared(found) if name != 'cross_domain'
             and next(iter(tested.values()))['column'] in ('1-shot', 'after 100%')]
    height, y, ticks, most = sum(1.3 + len(tested) for _, tested in lines), 0, {}, 4.6
    fig, ax = plt.subplots(figsize=(5.6, 0.6 + 0.2*height), layout='constrained', dpi=72)
    for one, tested in lines:
        name = re.sub(r'^both\b', 'both parts', str(one))
        if len(name) > 60: name, y = name.replace(' above ', '\nabove '), y + 0.8
        ax.text(0.01, y - 0.4*name.count('\n'), name, fontsize=9, va='center',
                weight='bold', transform=blend(fig.transFigure, ax.transData), in_layout=False,
                bbox=dict(facecolor='white', edgecolor='none', pad=1))
        for data in (data for data in sets if data in tested):
            y += 1
            o, known = tested[data], {(o['claim'], o['column']): o for results in found.values()
                                      for o in results.get(data, {}).get('claims', ())}
            ticks[y], paper = data.split(', ')[-1], o['paper_scaled']
            colour = 'tab:gray' if verdict(o) == 'not tested' else 'tab:blue'
            ax.errorbar(o['mean'], y, xerr=o['half'], fmt='o', ms=4, color=colour)
            control = known.get((f'{one.better} above {one.control}', o['column']))
            if control: ax.errorbar(control['mean'], y + 0.3, xerr=control['half'], fmt='s', ms=4,
                                    mfc='none', color='tab:orange')
            if o['paper'] is None: continue
            if paper < most: ax.plot(paper, y, '|', ms=10, mew=2, color='k')
            else: ax.text(most, y, f'{paper:.1f} >', fontsize=9, ha='right', va='center')
        y += 1.3
    ax.axvline(0, color='black', lw=0.8)
    ax.set_yticks([*ticks], ticks.values(), fontsize=9)
    ax.tick_params('y', length=0)
    ax.spines[['left', 'top', 'right']].set_visible(False)
    ax.set(xlabel='difference (points)', xlim=(-3.5, most), ylim=(y - 0.4, -0.8))
    marks = (('o', 'tab:blue', 'difference'), ('o', 'tab:gray', 'the same, not tested'),
             ('s', 'tab:orange', 'from the control'), ('|', 'k', "the paper's, at this error"))
    for mark, colour, label in marks: ax.plot([], [], mark, mfc='none' if mark == 's' else
                                              colour, color=colour, label=label)
    fig.legend(fontsize=9, loc='outside lower center', ncols=2)
    plt.close(fig)
    return fig

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
        ax.locator_params('x', nbins=6)
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
