"""Trains and tests CIFAR-FS, then FC100, at the published width: `python nbs/measured/published_width.py RUNS [EPOCHS]`

EPOCHS are those of the warm-up, 60 where none are given; what follows takes its share of the same hours.

Whatever ended it, the same command goes on after the last epoch that was finished.
In RUNS lie the trainings (`lab`), the accuracy of each task (`lab/measured`), and a summary (`summary.json`) that
grows row by row. The images are those of RUNS/cifar100, a folder for each class, or else torchvision's CIFAR-100.
The notebook `measured/published_width` says why the settings are what they are."""
import json, sys
from pathlib import Path

import torch
import torch.nn.functional as F
from fastai.callback.core import Callback
from fcam.encoder import ResNet12
from fcam.evaluate import Accuracy, FeatureBank, evaluate
from fcam.metric import CosineMetric
from fcam.paper.experiments import Row, training_of
from fcam.runs.record import machine
from fcam.core.files import write_json
from fcam.paper.laboratory import Laboratory, read_training
from fcam.commands.options import load_data
from fcam.training.checkpoint import read_start
from fcam.training.presets import choose_preset

recipe = dict(color_jitter=0.4)                                # the warm-up, by measured/warmup_pilots
plan = dict(width=64, patch_size=32, scale=(0.2, 1.), bs=128, warmup_drops=(),
            calibration_lr=0.01, soft_weight=0.5, momentum=0.998, n_patches=9, n_iters=50,
            joint_lr=1e-3, eps=0.1, sharpness=1., norm_power=0., weights_lr=0.,          # the paper's weights of the patches
            valid_patches=2, n_views=1, n_test=(5000, 600), sfc_epochs=20, sfc_lr=0.05)
teacher = 'calibration'                                        # the stage that leaves it

def numbers(epochs):
    "Settings: epochs of the warm-up, of the module alone and of the joint stage"
    n = max(1, epochs//20)
    return dict(warmup_epochs=epochs, module_epochs=n, joint_epochs=n)

def losses(epochs):
    """Name to settings: what follows a warm-up of so many epochs, each for about a quarter to a third of its hours

    In the few steps of an epoch with crops, a teacher of the momentum 0.998 would still be the warm-up for the
    most part. So it has a lower one there, of which a tenth of the warm-up is left at the end."""
    n = max(1, epochs//15)
    crops = dict(calibration_epochs=n, momentum=1 - 0.008/n)
    return {
        'UniCon KL': crops,
        'L_CE alone, averaged': dict(soft_target='none', calibration_epochs=5*n),
        'hard labels on all crops': crops | dict(soft_target='label'),
        'classical KL': crops | dict(class_temperature=1.),
        'UniCon KL, as many steps': dict(calibration_epochs=5*n),
    }

metrics = {
    'meta-trained cosine': dict(metric='cosine'),
    'Adaptive Metric as in the paper': {},
    'weights (1, 0), eps 0.1 for all pairs': dict(metric='fixed'),
    'weights (4, 3), one eps': dict(metric='fixed', eps=0.02, sharpness=4., norm_power=3., weights_lr=0.05),
    'temperature 1/8 in (15), (16)': dict(sharpness=8., weights_lr=0.05),
    'weights (4, 3)': dict(sharpness=4., norm_power=3., weights_lr=0.05),
    'weights (8, 4)': dict(sharpness=8., norm_power=4., weights_lr=0.05),
    'weights (8, 4), eps 0.1 for all pairs': dict(metric='fixed', sharpness=8., norm_power=4., weights_lr=0.05),
}
classifiers = 'sinkhorn', 'simpleshot', 'deepemd', 'emd', 'euclidean', 'matching', 'logistic_regression', 'dn4', 'mcl', 'frn'

class Distilled(Callback):
    "In pretraining, half of the loss is for the soft labels of a trained network, at temperature 4 (RFS, Tian et al. 2020)"
    order = 6                                                  # after the losses of Feature Calibration, within autocast
    def __init__(self, network): self.network = network.eval().requires_grad_(False)
    def after_loss(self):
        if not self.training or not hasattr(self.learn, 'feature_calibration'): return
        with torch.no_grad(): labels = self.network(self.xb[0])
        logits, labels = ((one.float()/4).log_softmax(-1) for one in (self.pred, labels))
        soft = 4**2*F.kl_div(logits, labels, log_target=True, reduction='batchmean')
        self.learn.loss_grad = (self.learn.loss_grad + soft)/2
        self.learn.loss = self.learn.loss_grad.clone()

def network_of(lab, training):
    "Encoder and head of the teacher that a training left"
    left, _ = read_start(lab.trained(training), ResNet12(lab.preset.width), lab.data['data'])
    return torch.nn.Sequential(left.encoder, left.head).to(lab.device, memory_format=torch.channels_last)

def benchmark(runs, name):
    "The images of a folder `cifar100`, with a folder for each class, or else torchvision's CIFAR-100"
    source = dict(data=str(runs/'cifar100'), splits=name) if (runs/'cifar100').is_dir() else dict(data=name)
    return load_data(**source)

class Chain:
    "The rows of one data set and one seed, in an order in which each is worth having if the next never comes"
    def __init__(self, runs, name, seed, epochs=60, folder='lab', cbs=(), **changes):
        self.runs, self.name, self.seed, self.epochs, self.losses = runs, name, seed, epochs, losses(epochs)
        data = benchmark(runs, name)
        preset = choose_preset(data, name, **plan | recipe | numbers(epochs) | changes)
        self.lab = Laboratory(runs/folder, data, preset, cbs=cbs)

    def network(self, settings):
        "Encoder and head of a teacher, whose rows were trained with these settings"
        return network_of(self.lab, training_of(Row(teacher, teacher, settings=settings), self.lab.preset, self.seed))

    def say(self, text): print(f'=== {self.name}, seed {self.seed}: {text}', flush=True)

    def known(self, row):
        "What is known of the trainings of a row, the last stage first"
        training = training_of(row, self.lab.preset, self.seed)
        while training:
            yield read_training(self.lab.training_folder(training))
            training = training.start

    def summarised(self, row, **facts):
        "Adds a row to the summary, or replaces it"
        file, key = self.runs/'summary.json', f'{self.name}, seed {self.seed}: {row.name}'
        parts = [dict(part=one['stage'], hours=round(one['seconds']/3600, 3), precision=one['facts']['precision'],
                      epochs=[[e['stage'], e['train_loss'], e['valid_accuracy'], e['kept'], e['seconds']] for e in one['history']])
                 for one in self.known(row)]
        found = json.loads(file.read_text()) if file.exists() else {}
        found[key] = dict(settings=row.settings, stage=row.stage, rule=row.rule, test=row.test, parts=parts[::-1], machine=machine(), **facts)
        write_json(file, **found)

    def tested(self, *rows, shots=(1, 5)):
        "Trains and tests rows, and writes down their accuracy and the right answers of each task"
        for row in rows:
            self.say(row.name)
            values = self.lab.measured(row, self.seed, shots)
            accuracy = {k: [Accuracy(v).mean, Accuracy(v).ci95] for k, v in values.items()}
            metric = self.lab.model(row, self.seed).metric if row.rule == 'own' else None
            weights = [torch.as_tensor(one).item() for one in metric.weight_factors().values()] if hasattr(metric, 'weight_factors') else []
            right = {k: ','.join(f'{0.75*one:.0f}' for one in v.tolist()) for k, v in values.items()}   # of 75 queries
            self.summarised(row, accuracy=accuracy, right=right, weights=weights)   # of the patches, at the end
            self.say(f'{row.name}: ' + ', '.join(f'{k} {Accuracy(v)}' for k, v in values.items()))

    def on_validation(self, row):
        "1-shot accuracy on 2000 tasks of the validation classes, by the cosine of mean features"
        model, data = self.lab.model(row, self.seed), self.lab.data['data']
        bank = FeatureBank(model.encoder, data.valid, model.patches, seed=7, precision=model.chosen_precision())
        return evaluate(CosineMetric(), bank, n_episodes=2000, seed=7).mean

    def pretraining(self, names):
        "The warm-up, and losses after it; the settings of the best teacher on the validation classes"
        self.tested(Row('warm-up', 'warm-up', 'cosine'))
        found = {}
        for name in names:
            row = Row(name, teacher, 'cosine', settings=self.losses[name])
            self.tested(row)
            found[name] = self.on_validation(row)
            self.say(f'{name}: {found[name]:.2f} % on the validation classes')
        best = max(found, key=found.get)
        self.say(f'the best teacher is that of {best}: {found}')
        return self.losses[best]

    def meta_training(self, best, names=tuple(metrics), before=''):
        "The metrics over one teacher; with five shots by mean prototypes, and by structured FC as in the paper"
        for name in names:
            settings, name = best | metrics[name], f'{before}{name}'
            self.tested(Row(name, settings=settings, test=dict(structured=False)))
            if settings.get('metric') != 'cosine': self.tested(Row(f'{name}, structured FC', settings=settings), shots=(5,))

    def student(self, best, width):
        "A network that learns from the teacher as well as from the images, and its control, which has no teacher"
        averaged = self.losses['L_CE alone, averaged']
        for folder, title, cbs in ((f'student{width}', f'student of width {width}', [Distilled(self.network(best))]),
                                   (f'width{width}', f'width {width}', [])):
            chain = Chain(self.runs, self.name, self.seed, self.epochs, folder, cbs, width=width)
            metric = 'weights (4, 3), one eps'
            settings, name = averaged | metrics[metric], f'{title}, {metric}'
            chain.tested(Row(f'{title}, warm-up', 'warm-up', 'cosine'),
                         Row(f'{title}, averaged', teacher, 'cosine', settings=averaged),
                         Row(name, settings=settings, test=dict(structured=False)))
            chain.tested(Row(f'{name}, structured FC', settings=settings), shots=(5,))

    def others(self, best):
        "Other classifiers on the features of the teacher, and other ways to test"
        self.tested(*(Row(name, teacher, name, settings=best) for name in classifiers))
        row = Row('cosine, mirrored', teacher, 'cosine', settings=best)
        model, store = self.lab.model(row, self.seed), self.lab.data['data'].test
        found = {k: model.accuracy(store, task, mirror=True, baseline='cosine') for k, task in self.lab.tasks(row, self.seed).items()}
        self.summarised(row, accuracy={k: [one.mean, one.ci95] for k, one in found.items()})
        for name in list(metrics)[:2]:
            self.tested(Row(f'{name}, 25 crops', settings=best | metrics[name], test=dict(n_patches=25, n_episodes=2000)), shots=(1,))
        self.predicted(best)

    def predicted(self, best, name='Adaptive Metric as in the paper', n_episodes=600):
        "Adds to the summary of the paper's metric: eps for similar and for dissimilar sets, mean and deviation over tasks"
        row = Row(name, settings=best | metrics[name], measure='plans', test=dict(n_episodes=n_episodes))
        values = self.lab.measured(row, self.seed, (1,))
        file, key = self.runs/'summary.json', f'{self.name}, seed {self.seed}: {name}'
        found = json.loads(file.read_text())
        found[key]['eps'] = {k: [v.mean().item(), v.std().item()] for k, v in values.items()}
        write_json(file, **found)

def main(runs, epochs=60):
    "The rows that carry a claim first, then the others, FC100, and a second seed"
    cifar_fs = Chain(runs, 'cifar_fs', 0, epochs)
    first, names = list(losses(epochs))[:2], list(metrics)
    best = cifar_fs.pretraining(first)
    cifar_fs.meta_training(best, names[:2])
    cifar_fs.pretraining(losses(epochs))
    cifar_fs.meta_training(best, names[2:])
    cifar_fs.meta_training(cifar_fs.losses['UniCon KL'], names[1:2], 'UniCon KL and the ')     # the whole method
    cifar_fs.others(best)
    cifar_fs.student(best, 32)
    for name, seed in (('fc100', 0), ('cifar_fs', 1)):
        chain = Chain(runs, name, seed, epochs)
        chain.meta_training(chain.pretraining(first), names[:4])

if __name__ == '__main__': main(Path(sys.argv[1]).expanduser().resolve(), *map(int, sys.argv[2:]))
