"""The Modulate Module alone, on the features of one network of the published width with 25 random crops

    OMP_NUM_THREADS=2 nice -n 19 python nbs/measured/published_width_module.py RUNS [TASKS]

RUNS holds the images, as for `published_width.py`, and `teacher`, a saved model, which stays as it is. Its features
of 84 images of each training class, 60 of each validation class and 100 of each test class are kept in
RUNS/features, class by class. The module is trained on TASKS tasks (4,000; the paper has 20,000), four a step, by
the paper's schedule, and scored on validation tasks after every hundred; so are the two numbers of the weights, on
1,000 tasks with one eps; RUNS/module.pt and RUNS/weights.pt are their checkpoints. The best fixed eps is chosen on validation tasks.
Then all rules have the same tasks of the test classes. Whatever ended it, the same command goes on; what was found
is in `results/published_width_module.json`, which grows row by row, and what it says of the paper's claim, with the
module as it is after its last task, in `results/claims/modulate_module-cifar_fs-full.json`."""
import json
import sys
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from time import perf_counter

import torch
import torch.nn.functional as F
from fcam.classifiers.scores import named_rule
from fcam.core.files import write_json
from fcam.encoders.named import weights_checksum
from fcam.episodes import Task, sample_episodes
from fcam.evaluate import evaluate, FeatureBank
from fcam.metric import AdaptiveMetric, EMDMetric
from fcam.model import load_fcam
from fcam.paper.claims import experiments
from fcam.paper.experiments import paired_difference
from fcam.runs.record import machine
from fcam.training.presets import Preset
from published_width import benchmark
from published_width_rules import Kept

results = Path(__file__).parents[1]/'results'/'published_width_module.json'
n_images, n_crops = dict(train=84, valid=60, test=100), 25
tried_eps = 0.01, 0.02, 0.05, 0.1, 0.2, 0.5
preset = Preset()                                              # the paper's
columns = {'1-shot': (1, 2000), '5-shot': (5, 2000)}
note = ('The module alone, one training of it on the features of one network, frozen, with 25 crops an image: the module after its last task. '
        'Of the paper it has the width, the patches, and a fifth of the tasks of its stage. The network had 50 epochs of cross entropy and 15 '
        'with averaged weights, no Feature Calibration, and is not trained along with the metric afterwards; five shots are means.')


def kept(model, store, part, folder):
    "The features of some images of each class, embedded once"
    banks, rows = [], []
    for c in range(store.n_classes):
        rows.append(torch.where(store.labels == c)[0][:n_images[part]])
        file = folder/f'{part}-{c}.pt'
        if not file.exists():
            patches = model.patches.replace(n_patches=n_crops)
            bank = FeatureBank(model.encoder, store, patches, images=rows[-1], precision=model.chosen_precision())
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(bank.bank[:, 0].half(), file.with_suffix('.part'))
            file.with_suffix('.part').rename(file)
            print(file.name, flush=True)
        banks.append(torch.load(file))
    bank = Kept(model, store, torch.cat(rows), torch.cat(banks))
    bank.precision = model.chosen_precision()
    return bank


def score(rule, bank, n_shot=1, n_tasks=100): return evaluate(rule, bank, Task(n_shot=n_shot, n_episodes=n_tasks))


def logits(metric, bank, images):
    "Of the queries of a one-shot task"
    support, query = (bank(one.flatten()) for one in images)
    with torch.autocast('cpu', torch.bfloat16, enabled=bank.precision == 'bfloat16'):
        return preset.score_temperature*metric(query, support)


def trained(metric, highest, train, valid, n_tasks, file):
    "The metric as it is best on the validation tasks; its history: tasks, loss, accuracy on the validation tasks; seconds"
    decay = preset.weight_decay if metric.modulate else 0.
    optimizer = torch.optim.Adam(metric.parameters(), weight_decay=decay)
    def weights(): return {name: tensor.clone() for name, tensor in metric.state_dict().items()}
    state = dict(done=0, history=[], best=weights(), seconds=0.)
    if file.exists():
        state = torch.load(file)
        metric.load_state_dict(state['metric'])
        optimizer.load_state_dict(state['optimizer'])
        torch.set_rng_state(state['random'])
    else: state['history'].append([0, None, score(metric.eval(), valid).mean])
    per_step, labels = preset.n_tasks_per_step, torch.arange(5).repeat_interleave(15)
    def rate(done): return highest*preset.schedule('module')(done)/preset.module_lr
    while state['done'] < n_tasks:
        losses, metric, began = [], metric.train(), perf_counter()
        for i in range(state['done'], state['done'] + 100):
            task = sample_episodes(train.labels, seed=i)
            loss = F.cross_entropy(logits(metric, train, [part[0] for part in task]), labels)
            (loss/per_step).backward()
            losses.append(loss.item())
            if i % per_step == per_step - 1:
                for group in optimizer.param_groups: group['lr'] = rate(i/n_tasks)
                optimizer.step()
                optimizer.zero_grad()
        found = score(metric.eval(), valid).mean
        state['history'].append([i + 1, sum(losses)/len(losses), found])
        if found >= max(row[2] for row in state['history']): state['best'] = weights()
        state |= dict(done=i + 1, metric=metric.state_dict(), optimizer=optimizer.state_dict(), random=torch.get_rng_state(),
                      seconds=state['seconds'] + perf_counter() - began)
        torch.save(state, file.with_suffix('.part'))
        file.with_suffix('.part').rename(file)
        print(*state['history'][-1], flush=True)
    metric.load_state_dict(state['best'])
    return metric.eval(), state['history'], state['seconds']


@torch.no_grad()
def predicted(metric, bank, n_tasks=20):
    "Quantiles of the eps that the module predicts for the pairs of one-shot tasks: 0, 0.05, 0.5, 0.95, 1"
    found = []
    for i in range(n_tasks):
        support, query = (bank(part[0].flatten()) for part in sample_episodes(bank.labels, seed=i))
        found.append(metric.pair_eps(query, support).flatten())
    return torch.cat(found).quantile(torch.tensor([0., 0.05, 0.5, 0.95, 1.])).tolist()


def of_claim(found, data, n_tasks):
    "The record of the paper's claim, as `fcam_reproduce` has it: the module after its last task, above the eps it began from"
    one = experiments['modulate_module']
    claim, paper = next(claim for claim in one.claims if claim.primary), one.paper['mini_imagenet']
    seconds = round(found['seconds of the module'], 1)
    settings = replace(preset, warmup_epochs=50, calibration_epochs=15, soft_target='none', n_iters=50, module_epochs=n_tasks//200, joint_epochs=0).settings()
    values = {name: {column: [int(n)/0.75 for n in found['rows'][row][column].split(',')] for column in columns}
              for name, row in ((claim.better, 'Modulate Module, last'), (claim.than, 'eps 0.1'))}
    rows, claims = [], []
    for name, of_columns in values.items():
        ours = {column: paired_difference([right], [[0]*len(right)], True) for column, right in of_columns.items()}
        ours = {column: dict(mean=o.mean, half=o.half, per_seed=[o.mean], n=o.n_tasks[0], over='tasks') for column, o in ours.items()}
        kept = {'module': n_tasks//200} if name == claim.better else {}
        part = dict(folder='module', seed=0, seconds=seconds, precision=found['precision'], kept=kept)
        rows.append(dict(name=name, stage='module', student=False, rule='own', measure='accuracy', test={}, settings={},
                         paper=paper[name], ours=ours, trainings=[part]*bool(kept), seconds=0.))
    for column in columns:
        difference = paired_difference([values[claim.better][column]], [values[claim.than][column]], True)
        theirs = round(paper[claim.better][column] - paper[claim.than][column], 4)
        scaled = theirs*(100 - rows[1]['ours'][column]['mean'])/(100 - paper[claim.than][column])
        p, p_paper = difference.p_of(), difference.p_of(scaled)
        claims.append(dict(claim=str(claim), says='', ours=False, primary=not claims, theorem=False, control=None, parts=claim.parts,
            share=claim.share(settings), column=column, paper=theirs, paper_scaled=scaled, mean=difference.mean, half=difference.half,
            difference=asdict(difference), p=p, p_paper=p_paper, p_corrected=p, p_paper_corrected=p_paper))
    return dict(experiment=one.name, claim=one.claim, place=one.place, note=note, claims=claims, rows=rows, equal_rows=[], left_out=[],
        paper_on='mini_imagenet', size='full', seeds=[0], complete=True, structured=False, settings=settings,
        data=dict(data=str(data)), fingerprints=dict(data=data.fingerprint()), precision=found['precision'], machine=machine(),
        seconds=seconds, date=datetime.now().astimezone().isoformat(timespec='seconds'),
        command_line=f'python nbs/measured/published_width_module.py RUNS {n_tasks}')


def main(runs, n_tasks=4000):
    model, data = load_fcam(runs/'teacher', device='cpu'), benchmark(runs, 'cifar_fs')
    banks = {part: kept(model, getattr(data, part), part, runs/'features'/weights_checksum(model.encoder)[:16]) for part in n_images}
    n_features = banks['train'].bank.shape[-1]
    found = dict(machine=machine(), precision=banks['test'].precision, eps={}, rows={})
    if results.exists(): found = json.loads(results.read_text())
    for eps in map(str, tried_eps):
        if eps in found['eps']: continue
        found['eps'][eps] = score(AdaptiveMetric(n_features, eps=float(eps), modulated=False), banks['valid'], n_tasks=300).mean
        write_json(results, **found)
    best = max(found['eps'], key=found['eps'].get)
    torch.manual_seed(0)
    metrics = dict(module=AdaptiveMetric(n_features, eps=preset.eps),
                   weights=AdaptiveMetric(n_features, eps=preset.eps, modulated=False, sharpness=8., norm_power=4., learn_weights=True))
    for (name, metric), highest, n in zip(metrics.items(), (preset.module_lr, 0.05), (n_tasks, 1000)):
        _, found[f'history of the {name}'], found[f'seconds of the {name}'] = trained(
            metric, highest, banks['train'], banks['valid'], n, runs/f'{name}.pt')
    last = AdaptiveMetric(n_features, eps=preset.eps).eval()
    last.load_state_dict(torch.load(runs/'module.pt')['metric'])
    for name, metric in ('eps of the module', metrics['module']), ('eps of the module, last', last):
        found[name] = predicted(metric, banks['test'])
    found['weights learned'] = {name: number.item() for name, number in metrics['weights'].weight_factors().items()}
    write_json(results, **found)
    means = torch.cat([banks['train'](rows).mean((0, 1))[None] for rows in torch.arange(len(banks['train'].labels)).split(500)])
    rules = {'cosine': named_rule('cosine'), 'SimpleShot': named_rule('simpleshot', mean=means.mean(0)),
             'eps 0.1': AdaptiveMetric(n_features, eps=0.1, modulated=False), 'Modulate Module': metrics['module'], 'Modulate Module, last': last,
             f'best fixed eps, {best}': AdaptiveMetric(n_features, eps=float(best), modulated=False),
             'weights (8, 4), eps 0.1': AdaptiveMetric(n_features, eps=0.1, modulated=False, sharpness=8., norm_power=4.),
             'weights learned from (8, 4), eps 0.1': metrics['weights'],
             'exact transport, (15), (16)': EMDMetric(weights='softmax', sharpness=1., norm_power=0.),
             "DeepEMD's rule": named_rule('deepemd')}
    for name, rule in rules.items():
        row = found['rows'].setdefault(name, {})
        for column, (n_shot, n_test) in columns.items():
            if column in row: continue
            right = score(rule, banks['test'], n_shot, n_test)
            row[column] = ','.join(f'{0.75*one:.0f}' for one in right.per_episode.tolist())
            print(f'{name}, {column}: {right}', flush=True)
            write_json(results, **found)
    write_json(results.parent/'claims'/'modulate_module-cifar_fs-full.json', **of_claim(found, data, n_tasks))


if __name__ == '__main__': main(Path(sys.argv[1]).expanduser().resolve(), *map(int, sys.argv[2:]))
