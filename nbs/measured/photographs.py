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
from torch import nn

from fcam.classifiers.fitted import cell_metric, FittedRule
from fcam.classifiers.features import Features
from fcam.classifiers.scores import ClassScores, rule_by
from fcam.classify import FewShotClassifier
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
        bank = Features.join(banks)
        torch.save((bank.local.half(), bank.whole, np.array(labels)), kept)
    return Features(*torch.load(kept, weights_only=False))


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
                else: one = ClassScores(rule_by(rule, encoder.metric), support, whiten=whiten,
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


def supports(bank, n_way, k, drawn=None):
    """Draws of classes and of `k` pictures of each, or those that are given, 20, of 81 classes ten:
    positions, the number of each class in the task or -1, and a generator"""
    pools = [np.flatnonzero(bank.labels == c) for c in range(bank.labels.max() + 1)]
    for i in range(20 if n_way < 81 else 10):
        rng = np.random.default_rng([i, n_way, k])
        classes = np.sort(rng.permutation(len(pools))[:n_way])
        rows = [rng.permutation(pools[c])[:k] for c in classes]
        if drawn: rows = [np.array(drawn[i][c][:k]) for c in classes]
        rank = np.full(len(pools), -1)
        rank[classes] = np.arange(n_way)
        yield np.concatenate(rows), rank, rng


def trust(like, days, encoder, n_way, k, drawn=None, most=300):
    """What `fit` prints beside what comes: of other pictures of `like`, which has the supports, and
    of `days` where there is one; pictures of absent classes are of the latter where it is there"""
    rows, answered = [], {'like': [], 'other_days': []}
    for support, rank, rng in supports(like, n_way, k, drawn):
        fitted, row = FittedRule(), {}
        fitted.none_of_these, start = 0.05, time.process_time()
        fitted.fit_rule(taken(like, support, rank[like.labels[support]]), encoder)
        row['seconds'], said = time.process_time() - start, fitted.estimate_
        for kind, bank in (('like', like), ('other_days', days)):
            if bank is None: continue
            apart = np.arange(len(bank.labels))
            if bank is like: apart = np.setdiff1d(apart, support)
            known = rank[bank.labels[apart]] >= 0
            asked, absent = (rng.permutation(apart[o])[:most] for o in (known, ~known))
            probs, lost = fitted.answers([taken(bank, asked)])
            labels = rank[bank.labels[asked]]
            answered[kind].append((probs, labels))
            row[kind] = 100*(probs.argmax(1) == labels).mean()
            row[f'{kind}_printed'] = said[kind] and [said[kind][0], said[kind][2]]
            row[f'{kind}_lost'] = 100*lost.mean()
            near = fitted.scores_.likeness(bank.take(absent)).amax(1).numpy()
            if len(absent): row[f'{kind}_caught'] = 100*(near < fitted.threshold_).mean()
        row['joined'] = float(said['n_groups'] < len(support))
        rows.append(row | dict(caught_printed=100*fitted.unknown_caught_))
    table = {name: [row[name] if row[name] is None else np.round(row[name], 1).tolist()
                    for row in rows] for name in rows[0]}
    return table | dict(ece={kind: float(round(calibration_error(*map(np.concatenate, zip(*o))), 1))
                             for kind, o in answered.items() if o})


def beside(train, test, encoder, n_way, k, most=300):
    """Percent right by the rule that is taken where none is named, and by what others write: the
    pooled features of the same encoder and scikit-learn; and milliseconds, fitting and asking"""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    centre, rates = getattr(encoder, 'score_temperature', None) is None, {}
    theirs = dict(logistic_regression=LogisticRegression(max_iter=1000),
        nearest_neighbour=KNeighborsClassifier(1, metric='cosine'),
        lda=LinearDiscriminantAnalysis(solver='lsqr', shrinkage='auto'))
    for i, (support, rank, rng) in enumerate(supports(train, n_way, k)):
        support = taken(train, support, rank[train.labels[support]])
        query = taken(test, rng.permutation(np.flatnonzero(rank[test.labels] >= 0))[:most])
        for name in 'fcam', *theirs:
            if name == 'lda' and (k == 1 or i > 4): continue    # no scatter; many seconds
            start = time.process_time()
            rule = rule_by('whole_and_parts', encoder.metric)
            if name == 'fcam': answers = ClassScores(rule, support, whiten=True,
                                                     centre=centre)(query).argmax(1)
            else: answers = theirs[name].fit(support.whole.numpy(), support.labels).predict(
                query.whole.numpy())
            spent = 1000*(time.process_time() - start)/len(answers)
            right = 100*(answers == rank[query.labels]).mean()
            for key, value in ((name, right), (f'{name}_ms', spent)):
                rates.setdefault(key, []).append(round(float(value), 2))
    return rates


def learning(train, test, encoder, n_way, k, most=300):
    """Percent right with and without `unlabelled` pictures, which are those that are asked for: as
    many of each class as there are, or of half of the classes, by Zipf's law fewer and fewer"""
    centre, rates = getattr(encoder, 'score_temperature', None) is None, {}
    for support, rank, rng in supports(train, n_way, k):
        support = taken(train, support, rank[train.labels[support]])
        asked = rng.permutation(np.flatnonzero(rank[test.labels] >= 0))
        share = 1/(1 + rng.permutation(n_way))*(rng.permutation(n_way) < (n_way + 1)//2)
        some = asked[rng.random(len(asked)) < share[rank[test.labels[asked]]]]
        for kind, rows in (('balanced', asked[:most]), ('zipf, half', some[:most])):
            query = taken(test, rows)
            for name, unlabelled in ((kind, None), (f'{kind}, learned', query.whole)):
                rule = rule_by('whole_and_parts', encoder.metric)
                scores = ClassScores(rule, support, whiten=True, centre=centre,
                                     unlabelled=unlabelled)(query)
                right = 100*(scores.argmax(1) == rank[query.labels]).mean()
                rates.setdefault(name, []).append(round(float(right), 2))
    return rates


def suggested(train, test, encoder, n_way, k, most=300):
    """Percent right, by the wholes alone, after `n_way*k` of all pictures of some classes have been
    labelled, which were drawn at random, or suggested in `k` rounds; and how many classes have one"""
    found = {}
    for _, rank, rng in supports(train, n_way, 1):
        pool, asked = (o.take(rank[o.labels] >= 0) for o in (train, test))
        asked = asked.take(rng.permutation(len(asked.labels))[:most])
        for name in 'random', 'suggested':
            clf, rows = FewShotClassifier(None, verbose=False), np.array([], dtype=int)
            for _ in range(k):
                left = np.setdiff1d(np.arange(len(pool.labels)), rows)
                if name == 'random': new = rng.permutation(len(left))[:n_way]
                else: new = [o['position'] for o in clf.suggest(pool.whole[left], n_way)]
                rows = np.concatenate([rows, left[new]])
                clf.fit(pool.whole[rows], pool.labels[rows])
            right = 100*clf.score(asked.whole, asked.labels)
            for key, value in ((name, right), (f'{name}, classes', len(clf.classes_))):
                found.setdefault(key, []).append(round(float(value), 2))
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
                scores = ClassScores(rule_by(rule, encoder.metric), support, whiten=whiten,
                                     centre=centre)
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

        def measured(part, sizes, measure, *args):
            "What is missing of a part, for each number of classes and of pictures"
            for n_way, k in sizes:
                if (size := f'{n_way} x {k}') in known.setdefault(part, {}): continue
                known[part][size] = measure(*args, encoder, n_way, k)
                write_json(file, **known)
                print(part, size, flush=True)

        few_pictures = [*product((5, 20), (2, 3, 5, 10))]
        if not (data/'train').exists():
            bank = features(encoder, name, data, 'test', cache)
            if 'tasks' not in known: known['tasks'] = small_tasks(bank, encoder)
            measured(f'trust, {data.name}', few_pictures, trust, bank, None)
            continue
        train, test = (features(encoder, name, data, part, cache) for part in ('train', 'test'))
        known['accuracy'] = accuracies(train, test, drawn['random'], encoder,
                                       known.get('accuracy', {}))
        measured('trust', [*few_pictures, (81, 2), (81, 5)], trust, train, test)
        measured('learning', [*product((5, 20, 81), (1, 2, 5)), (20, 10)], learning, train, test)
        measured('suggested', product((5, 20), (1, 2, 5)), suggested, train, test)
        measured('beside', product((5, 8, 20, 81), (1, 2, 3, 5, 10)), beside, train, test)
        measured('shelf', [(81, 2), (81, 5)],
                 lambda *args: trust(*args, drawn['shelf']), train, test)
