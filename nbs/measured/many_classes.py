"""Seconds of one processor thread: many classes by features, and a photograph, before and after

    OMP_NUM_THREADS=1 python nbs/measured/many_classes.py [OTHER]

OTHER is a checkout of another version of fcam, whose times stand beside those of this one: each size is measured by
both in turn, three rounds, each in a process of its own, and by scikit-learn; the least of the rounds counts. What was
found is in `results/many_classes.json`."""
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

sizes = (100, 5, 512), (1000, 5, 512), (10_000, 5, 32)
results = Path(__file__).parents[1]/'results'/'many_classes.json'


def seconds(call, n=1):
    "Of the processor, the mean of `n` calls"
    start = time.process_time()
    for _ in range(n): call()
    return (time.process_time() - start)/n


def features(n_classes, n_pictures, d):
    "Around random means, with much in common"
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(n_classes), n_pictures)
    return rng.normal(size=(n_classes, d))[y] + 1.2*rng.normal(size=(len(y), d)) + 2*rng.normal(size=d), y


def by_features(*size):
    "Seconds of each call of `FewShotClassifier`"
    from fcam.classify import FewShotClassifier
    X, y = features(*size)
    def classifier(): return FewShotClassifier(encoder=None, verbose=False)
    classifier().fit(*features(20, 5, 32)).predict(X[:3, :32])     # what is loaded once
    clf, most, last = classifier(), y < y.max(), y == y.max()
    found = dict(fit=seconds(lambda: clf.fit(X, y)))
    part = classifier().fit(X[most], y[most])
    found['one class more'] = seconds(lambda: part.partial_fit(X[last], y[last]))
    found['32 at once, each'] = seconds(lambda: clf.predict(X[:32]), 10)/32
    found['one alone'] = seconds(lambda: clf.predict(X[:1]), 20)
    with tempfile.TemporaryDirectory() as folder:
        found['save'] = seconds(lambda: clf.save(f'{folder}/clf'))
        found['load'] = seconds(lambda: FewShotClassifier.load(f'{folder}/clf'))
    return found


def by_others(*size):
    "Seconds of `fit` and of a prediction of 32 at once, each, by scikit-learn"
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
    X, y, found = *features(*size), {}
    peers = dict(NearestCentroid=NearestCentroid(), KNeighborsClassifier=KNeighborsClassifier(5),
                 LDA=LinearDiscriminantAnalysis(solver='lsqr', shrinkage='auto'))
    for name, peer in peers.items():
        if name == 'LDA' and size[0] > 1000: continue              # a covariance of each class: minutes
        found[name] = dict(fit=seconds(lambda: peer.fit(X, y)))
        found[name]['32 at once, each'] = seconds(lambda: peer.predict(X[:32]), 3)/32
    return found


def with_parts(n_classes=1000, n_parts=25, d=64):
    "Seconds of an answer where parts are compared, those of fifty candidates"
    import torch
    from fcam.classifiers.features import Features
    from fcam.classifiers.fitted import FittedRule
    local = torch.randn(n_classes, n_parts, d) + torch.randn(n_classes, 1, d)
    bank = Features(local, local.mean(1), np.arange(n_classes))
    clf, new = FittedRule(), bank.take(range(32))
    fit = seconds(lambda: clf.fit_rule(bank, groups=np.arange(n_classes)))
    return {'fit': fit, '32 at once, each': seconds(lambda: clf.answers([new]), 3)/32}


def photographs(name, n=20):
    "Milliseconds of a JPEG of 1000 x 1000 pixels: decoded at the size that is enough, its bare forward, and `predict`"
    import torch
    from PIL import Image
    from fcam.classify import FewShotClassifier
    from fcam.encoders.named import named_encoder
    from fcam.images.pixels import load_image
    from fcam.model import load_fcam
    encoder = load_fcam(name) if name == 'cifar_fs' else named_encoder(name, pretrained='lite0' in name)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        files = [f'{folder}/{i}.jpg' for i in range(n)]
        for file in files:
            rough = Image.fromarray(rng.integers(0, 255, (60, 60, 3), dtype=np.uint8))
            rough.resize((1000, 1000), Image.Resampling.BICUBIC).save(file, quality=90)
        clf = FewShotClassifier(encoder, verbose=False).fit(files[:10], [*'abcde']*2)
        decoded = seconds(lambda: [load_image(file, encoder.enough) for file in files])
        images = [load_image(file, encoder.enough) for file in files]
        if name == 'cifar_fs': x, model = torch.cat([encoder.cut(one)[0] for one in images]), encoder.encoder
        else: x, model = torch.stack([*map(encoder.transform, images)]), encoder.model
        x = x.to(memory_format=torch.channels_last)
        forward = seconds(lambda: [model(part) for part in x.split(32)])
        whole = seconds(lambda: clf.predict(files))
    return {k: 1000*o/n for k, o in dict(decoding=decoded, forward=forward, predict=whole).items()}


calls = dict(by_features=by_features, with_parts=with_parts, photographs=photographs)


def measured(checkout, name, *arguments):
    "What a function gives in a process of its own, with the package of a checkout"
    command = [sys.executable, '-W', 'ignore', __file__, '--one', name, json.dumps(arguments)]
    env = os.environ | dict(PYTHONPATH=str(checkout), OMP_NUM_THREADS='1')
    done = subprocess.run(command, env=env, cwd=tempfile.gettempdir(), capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def least(checkouts, name, *arguments, rounds=3):
    "The least of each number over the rounds, in which the checkouts take turns"
    found = {key: [] for key in checkouts}
    for _ in range(rounds):
        for key, checkout in checkouts.items(): found[key].append(measured(checkout, name, *arguments))
    return {key: {k: min(one[k] for one in several) for k in several[0]} for key, several in found.items()}


def main(other=None):
    import fcam
    from fcam.core.files import write_json
    from fcam.runs.record import machine
    here = dict(now=Path(__file__).parents[2])
    both = here | (dict(before=Path(other).resolve()) if other else {})
    found = dict(machine=machine(), before=None, features={}, others={}, photographs={})
    if other: found['before'] = measured(both['before'], 'version')
    for size in sizes:
        name = '{} x {} x {}'.format(*size)
        found['features'][name] = least(both, 'by_features', *size)
        found['others'][name] = by_others(*size)
        print(name, found['features'][name], found['others'][name], flush=True)
        write_json(results, **found)
    found['parts'] = least(here, 'with_parts')['now']
    for name in 'efficientnet_lite0', 'torchvision:squeezenet1_1', 'cifar_fs':
        found['photographs'][name] = least(here, 'photographs', name)['now']
        print(name, found['photographs'][name], flush=True)
    write_json(results, **found)


def version():
    import fcam
    return fcam.__version__


if __name__ == '__main__':
    warnings.simplefilter('ignore')
    if sys.argv[1:2] == ['--one']:
        print(json.dumps((calls | dict(version=version))[sys.argv[2]](*json.loads(sys.argv[3]))))
    else: main(*sys.argv[1:])
