"""Rules, estimates and probabilities on Grocery Store photographs (Klasson et al., 2019).

    python nbs/measured/photographs.py DATA CACHE ENCODER [ENCODER ...]

DATA holds `train` and `test` with a folder of pictures for each class, CACHE keeps the features.
An encoder is a name for `named_encoder` or a packaged model; `squeezenet=FILE` takes the weights of
SqueezeNet's authors from a file of safetensors. Each has a JSON in `nbs/results/photographs/`, of
what is missing there; the draws of the support are in `draws.json` beside them. Of a DATA without
`train`, such as the test classes of CIFAR-FS, tasks of five classes are drawn."""
import json
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from scipy.special import log_softmax, softmax
from torch import nn

from fcam.classifiers.fitted import cell_metric, FittedRule
from fcam.classifiers.unequal import Bank, class_cosines, ClassScores
from fcam.core.files import write_json
from fcam.core.models import is_our_model
from fcam.encoders.named import named_encoder
from fcam.model import load_fcam

results = Path(__file__).parents[1]/'results'/'photographs'
shots = 1, 2, 3, 5
plain = 'cosine', 'metric', 'whole_and_parts', 'logistic_regression', 'gda'
few = dict.fromkeys(('frn', 'mcl', 'dn4', 'max_similarity', 'euclidean', 'simpleshot', 'matching',
                     'sinkhorn', 'unbalanced_sinkhorn'), 10) | dict.fromkeys((
                     'emd', 'deepemd', 'linear_classifier', 'cosine_classifier'), 2)
whitened = 'cosine', 'metric', 'whole_and_parts', 'frn', 'mcl', 'unbalanced_sinkhorn'


class SqueezeNet(nn.Module):
    "SqueezeNet 1.1 with its authors' weights, which are for blue, green, red"
    def __init__(self, file):
        from safetensors.torch import load_file
        from torchvision.models import squeezenet1_1
        super().__init__()
        self.features = squeezenet1_1().features
        self.features.load_state_dict(load_file(file))
    def forward(self, x): return self.features(x.flip(1))


def encoder_of(name):
    "An encoder that `FewShotClassifier` takes"
    if is_our_model(name): return load_fcam(name, device='cpu')
    if not name.startswith('squeezenet='): return named_encoder(name, device='cpu')
    mean = [value/255 for value in (123.68, 116.779, 103.939)]
    return named_encoder(SqueezeNet(name.partition('=')[2]), size=224, mean=mean, std=(1/255,)*3,
                         device='cpu')


def features(encoder, name, data, part, cache):
    "All pictures of a part of the data, embedded once"
    kept = cache/f'{data.name}-{name}-{part}.pt'
    if not kept.exists():
        classes, banks, labels = sorted(p for p in (data/part).iterdir()), [], []
        files = [(c, file) for c, folder in enumerate(classes) for file in sorted(folder.iterdir())]
        for i in range(0, len(files), 32):
            labels += [c for c, _ in files[i:i + 32]]
            banks.append(encoder.embed([Image.open(file) for _, file in files[i:i + 32]], 0))
        bank = Bank.join(banks)
        torch.save((bank.local.half(), bank.whole, np.array(labels)), kept)
    return Bank(*torch.load(kept, weights_only=False))


def taken(bank, rows, labels=None):
    "Some pictures of a bank, in float32"
    some = bank.take(rows)
    return some._replace(local=some.local.float(), labels=some.labels if labels is None else labels)


def accuracies(train, test, draws, encoder, found):
    "Percent right of each draw, by rule and pictures a class; each draw asks a fifth of the test"
    centre = getattr(encoder, 'score_temperature', None) is None
    for k in shots:
        missing = {}
        for rule, whiten in product(plain + tuple(few)*(k in (1, 5)), (False, True)):
            senseless = k == 1 and (rule == 'gda' or whiten and rule in few)
            if senseless or whiten and rule not in whitened: continue
            if str(k) not in found.get(rule + ', whitened'*whiten, {}): missing[rule, whiten] = []
        for i, draw in enumerate(draws*bool(missing)):
            support = taken(train, np.concatenate([rows[:k] for rows in draw]))
            query, scores = taken(test, np.arange(i%5, len(test.labels), 5)), {}
            for rule, whiten in missing:
                if i >= few.get(rule, len(draws)): continue
                parts = [scores.get((part, whiten)) for part in ('cosine', 'metric')]
                if rule == 'whole_and_parts' and all(o is not None for o in parts): one = sum(parts)
                else: one = ClassScores(rule, support, encoder.metric, whiten=whiten,
                                        centre=centre)(query)
                scores[rule, whiten] = one
                right = 100*float((one.argmax(1) == query.labels).mean())
                missing[rule, whiten].append(round(right, 3))
        for (rule, whiten), rates in missing.items():
            found.setdefault(rule + ', whitened'*whiten, {})[str(k)] = rates
        print(k, {name: round(np.mean(o[str(k)]), 1) for name, o in found.items() if str(k) in o},
              flush=True)
    return found


def calibration_error(probs, labels, n_bins=15):
    "Expected calibration error, percent"
    confidence, right = probs.max(1), probs.argmax(1) == labels
    which = np.minimum((confidence*n_bins).astype(int), n_bins - 1)
    return 100*sum((which == b).mean()*abs(confidence[which == b].mean() - right[which == b].mean())
                   for b in np.unique(which))


def estimates(train, test, draws, encoder, shots=(2, 3, 5), rule='auto', whiten=None):
    "What `fit` says and what comes, by pictures a class"
    found = {}
    for k in shots:
        rows, probs, labels = [], [], []
        for i, draw in enumerate(draws):
            support = taken(train, np.concatenate([rows[:k] for rows in draw]))
            query = taken(test, np.arange(i%5, len(test.labels), 5))
            fitted, start = FittedRule(), time.process_time()
            fitted.rule, fitted.whiten = rule, whiten
            fitted.fit_rule(support, encoder)
            seconds, said = time.process_time() - start, fitted.estimate_ or {}
            start = time.process_time()
            scores = fitted.scores_(query)/fitted.temperature_
            asked = 1000*(time.process_time() - start)/len(scores)
            loss = -log_softmax(scores, axis=1)[np.arange(len(scores)), query.labels].mean()
            rows.append(dict(right=100*(scores.argmax(1) == query.labels).mean(), log_loss=loss,
                said=said.get('accuracy'), ci95=said.get('ci95'),
                said_log_loss=said.get('log_loss'), n_classes=said.get('n_classes', 0),
                seconds=seconds, ms_asked=asked))
            probs.append(softmax(scores, axis=1))
            labels.append(query.labels)
        probs, labels = np.concatenate(probs), np.concatenate(labels)
        found[str(k)] = dict({name: [None if row[name] is None else round(float(row[name]), 3)
                                     for row in rows] for name in rows[0]},
                             ece=round(calibration_error(probs, labels), 2),
                             confidence=round(100*float(probs.max(1).mean()), 2))
        print(k, rule, {name: round(np.mean([v for v in o if v is not None]), 2)
                        for name, o in found[str(k)].items() if isinstance(o, list)},
              found[str(k)]['ece'], flush=True)
    return found


def by_rule(train, test, draws, encoder):
    "The same with five pictures, for each rule that takes seconds and not minutes"
    found = {}
    for rule, whiten in product(plain + tuple(few), (False, True)):
        if few.get(rule) == 2 or whiten and rule not in whitened: continue
        one = estimates(train, test, draws[:5], encoder, (5,), rule, whiten)['5']
        found[rule + ', whitened'*whiten] = {name: one[name] for name in (
            'right', 'said', 'seconds', 'ms_asked', 'ece')}
    return found


def unknown(train, test, draws, encoder):
    "Shares of known and of unknown pictures that get 'none of these', with 0.05 and five pictures"
    found = []
    for i, draw in enumerate(draws):
        known = np.sort(np.random.default_rng(i).permutation(len(draw))[20:])
        support = taken(train, np.concatenate([draw[c] for c in known]))
        fitted = FittedRule()
        fitted.rule, fitted.whiten, fitted.none_of_these = 'cosine', True, 0.05
        fitted.fit_rule(support._replace(labels=np.repeat(np.arange(len(known)), 5)), encoder)
        best = class_cosines(fitted.bank_, test).amax(1).numpy() < fitted.threshold_
        among = np.isin(test.labels, known)
        found.append([round(100*float(best[which].mean()), 2) for which in (among, ~among)])
    return found


def small_tasks(bank, encoder, n_tasks=500):
    "Percent right of each task of five classes, by rule and pictures a class"
    found, rng, n_classes = {}, np.random.default_rng(0), len(np.unique(bank.labels))
    centre = getattr(encoder, 'score_temperature', None) is None
    for k in (1, 5):
        for _ in range(n_tasks):
            rows = np.array([rng.permutation(np.flatnonzero(bank.labels == c))[:k + 15]
                             for c in rng.permutation(n_classes)[:5]])
            support = taken(bank, rows[:, :k].ravel(), np.repeat(np.arange(5), k))
            query = taken(bank, rows[:, k:].ravel(), np.repeat(np.arange(5), 15))
            for rule, whiten in ('cosine', 0), ('metric', 0), ('whole_and_parts', 1):
                scores = ClassScores(rule, support, encoder.metric, whiten=whiten, centre=centre)
                right = 100*float((scores(query).argmax(1) == query.labels).mean())
                name = rule + ', whitened'*whiten
                found.setdefault(name, {}).setdefault(str(k), []).append(round(right, 1))
    return found


if __name__ == '__main__':
    data, cache = Path(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    cache.mkdir(parents=True, exist_ok=True)
    drawn = json.loads((results/'draws.json').read_text())
    for given in sys.argv[3:]:
        name = given.partition('=')[0].rpartition('/')[2].rpartition(':')[2]
        encoder, file = encoder_of(given), results/f'{name}.json'
        known = json.loads(file.read_text()) if file.exists() else {}
        if not (data/'train').exists():
            known['tasks'] = small_tasks(features(encoder, name, data, 'test', cache), encoder)
            write_json(file, **known)
            continue
        train, test = (features(encoder, name, data, part, cache) for part in ('train', 'test'))
        parts = dict(
            accuracy=lambda: accuracies(train, test, drawn['random'], encoder, known['accuracy']),
            random=lambda: estimates(train, test, drawn['random'], encoder),
            shelf=lambda: estimates(train, test, drawn['shelf'], encoder),
            unknown=lambda: unknown(train, test, drawn['random'], encoder),
            by_rule=lambda: by_rule(train, test, drawn['random'], encoder))
        known.setdefault('accuracy', {})
        for part, measure in parts.items():
            if part in known and part != 'accuracy': continue
            known[part] = measure()
            write_json(file, **known)
