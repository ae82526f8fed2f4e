"""Other rules on the features of one network of the published width

    python nbs/measured/published_width_rules.py RUNS

RUNS holds the images, as for `published_width.py`, and `teacher`, a saved model. Each image is embedded once a
crop: 9 and 16 random crops, and those of the grids of 1, 4 and 9 cells; the features are kept in RUNS/features.
What has a number to choose is tried on 200 images of each validation class, with nine random crops; then all
rules have the same tasks, of 200 images of each test class. What was found is in
`results/published_width_rules.json`, which grows rule by rule."""
import json
import sys
from pathlib import Path

import numpy as np
import torch

from fcam.classifiers.features import Features
from fcam.classifiers.scores import ClassScores, named_rule
from fcam.core.files import write_json
from fcam.episodes import Task
from fcam.evaluate import evaluate, FeatureBank, mean_feature
from fcam.model import load_fcam
from fcam.runs.record import machine
from published_width import benchmark

results = Path(__file__).parents[1]/'results'/'published_width_rules.json'
drawn = {'9 random': (9, 0, 'independent'), '16 random': (16, 1, 'independent'), 'grids': (14, 0, 'grid')}
tests = {'9 random': ['9 random'], '25 random': ['9 random', '16 random'], 'grids': ['grids']}
sharp = dict(sharpness=4., norm_power=3.)
candidates = { # what is tried on the validation classes; first as published, where it is
    'cosine': [('cosine', {})],
    'SimpleShot': [('simpleshot', dict(mean=mean)) for mean in ('training', 'support', 0.)],
    'whitened cosine': [('whitened', dict(centre=centre)) for centre in (False, True)],
    'FRN': [('frn', dict(alpha=alpha)) for alpha in (0., 2., 4., 6.)],
    'MCL': [('mcl', dict(gamma=2.*back, gamma_back=1.*back)) for back in (10, 5, 20, 40)],
    'DN4': [('dn4', dict(k=k)) for k in (3, 1, 5, 9, 25)],
    "DeepEMD's rule": [('deepemd', {})],
    'Adaptive Metric, weights (1, 0)': [('sinkhorn', dict(eps=0.1))],
    'Adaptive Metric, weights (4, 3)': [('sinkhorn', sharp | dict(eps=eps)) for eps in (0.1, 0.05, 0.02)]}


class Kept(FeatureBank):
    "Features of some images of a store, `(n_images, n, d)`"
    def __init__(self, model, store, rows, bank):
        super().__init__(model.encoder, store, model.patches, fresh=True)
        self.labels, self.bank = store.labels[rows], bank
    def __call__(self, images, episodes=None): return self.bank[images].float()


def features(model, store, rows, kind, file):
    "All crops of a kind of some images, embedded once"
    if not file.exists():
        n, seed, crops = drawn[kind]
        patches = model.patches.replace(n_patches=n, crops=crops)
        bank = FeatureBank(model.encoder, store, patches, seed=seed, images=rows,
                           precision=model.chosen_precision()).bank
        file.parent.mkdir(exist_ok=True)
        torch.save(bank[:, 0].clone(), file)
    return torch.load(file)


def whitened(kept, task, centre):
    "Percent right of each task by the cosine of means, features whitened by the support"
    support_labels, labels = (np.repeat(np.arange(task.n_way), n) for n in (task.n_shot, task.n_query))
    found = []
    for images in zip(*task.draw(kept)):
        support, query = (kept(one.flatten()) for one in images)
        score = ClassScores(named_rule('cosine'), Features(support, support.mean(1), support_labels), whiten=True,
                            centre=centre)
        found.append(100*(score(Features(query, query.mean(1))).argmax(1) == labels).mean())
    return torch.tensor(found)


def accuracy(rule, kept, task, training_mean):
    "Percent right of each task"
    name, settings = rule
    if name == 'whitened': return whitened(kept, task, **settings)
    if name == 'simpleshot':
        means = dict(training=training_mean, support=None)
        settings = dict(mean=means.get(settings['mean'], settings['mean']))
    return evaluate(named_rule(name, **settings), kept, task).per_episode


def main(runs, n_tasks=(600, 300), n_valid=(300, 150), n_images=dict(valid=200, test=200)):
    model, data = load_fcam(runs/'teacher', device='cpu'), benchmark(runs, 'cifar_fs')
    torch.set_num_threads(1)
    def kept(part, kind):
        store = getattr(data, part)
        rows = torch.cat([torch.where(store.labels == c)[0][:n_images[part]] for c in range(store.n_classes)])
        banks = [features(model, store, rows, one, runs/'features'/f'{part}, {one}.pt') for one in tests[kind]]
        return Kept(model, store, rows, torch.cat(banks, 1))
    def tasks(numbers): return {f'{k}-shot': Task(n_shot=k, n_episodes=n) for k, n in zip((1, 5), numbers)}
    mean = runs/'features'/'mean.pt'
    valid, found = kept('valid', '9 random'), dict(machine=machine(), chosen={}, valid={}, rows={})
    if not mean.exists():
        patches = model.patches.replace(n_patches=9)
        torch.save(mean_feature(model.encoder, data.train, patches, n_images=1000, precision=model.chosen_precision()), mean)
    mean = torch.load(mean)
    if results.exists(): found = json.loads(results.read_text())
    for name, tried in candidates.items():
        if name in found['chosen']: continue
        reached = [[accuracy(rule, valid, task, mean).mean().item() for task in tasks(n_valid).values()]
                   for rule in tried if len(tried) > 1]
        best = max(range(len(reached)), key=lambda i: sum(reached[i]), default=0)
        found['valid'][name], found['chosen'][name] = [*zip(tried, reached)], tried[best]
        write_json(results, **found)
    for kind in tests:
        bank = kept('test', kind)
        for name, rule in found['chosen'].items():
            row = found['rows'].setdefault(f'{kind}: {name}', {})
            for column, task in tasks(n_tasks).items():
                if column in row: continue
                right = accuracy(rule, bank, task, mean)
                row[column] = ','.join(f'{0.75*one:.0f}' for one in right.tolist())
                print(f'{kind}: {name}, {column}: {right.mean():.2f}', flush=True)
                write_json(results, **found)


if __name__ == '__main__': main(Path(sys.argv[1]).expanduser().resolve())
