"The script of the long training, at a tiny size: its rows are trained, tested and summarised, and none of them twice"
import json
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from project import nbs

tiny = dict(width=2, patch_size=16, n_patches=2, n_iters=1, n_tasks_per_step=1, n_query=2, n_valid=3,
            valid_images=80, n_views=1, n_test=(4, 2), sfc_epochs=1)

def few_pictures(folder):
    "21 pictures of noise for each class of CIFAR-FS"
    splits = json.loads((nbs.parent/'fcam'/'splits'/'cifar_fs.json').read_text())
    for name in sum((splits[part] for part in ('train', 'val', 'test')), []):
        (folder/name).mkdir(parents=True)
        for i in range(21): Image.fromarray(np.random.randint(0, 256, (32, 32, 3), dtype=np.uint8)).save(folder/name/f'{i}.png')

def test_rows_are_trained_once(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(nbs/'measured')
    import published_width as script
    monkeypatch.setattr(script, 'plan', script.plan | tiny)
    few_pictures(tmp_path/'cifar100')
    for n_trained in (6, 0):                                   # one warm-up, two calibrations, two metrics, of which one learns alone
        chain = script.Chain(tmp_path, 'cifar_fs', 0, epochs=1)
        of_paper = chain.lab.preset                            # what no row sets otherwise: the preset of CIFAR-FS has weights of ours
        assert (of_paper.sharpness, of_paper.norm_power, of_paper.weights_lr, of_paper.eps) == (1, 0, 0, 0.1)
        best = chain.pretraining(list(chain.losses)[:2])
        assert best in chain.losses.values(), best
        chain.meta_training(best, list(script.metrics)[:2])
        assert capsys.readouterr().out.count('\ntraining ') == n_trained
    chain.predicted(best, n_episodes=4)                        # the paper's metric is there already
    assert capsys.readouterr().out.count('\ntraining ') == 0
    chain.student(best, width=4)
    assert capsys.readouterr().out.count('\ntraining ') == 8     # with the control, which has no teacher
    found = json.loads((tmp_path/'summary.json').read_text())
    names = ['warm-up', 'UniCon KL', 'L_CE alone, averaged', 'meta-trained cosine', 'Adaptive Metric as in the paper']
    names += [f'{names[-1]}, structured FC', *(f'{title}, {part}' for title in ('student of width 4', 'width 4') for part in (
        'warm-up', 'averaged', 'weights (4, 3), one eps', 'weights (4, 3), one eps, structured FC'))]
    assert list(found) == [f'cifar_fs, seed 0: {name}' for name in names]
    last = found['cifar_fs, seed 0: Adaptive Metric as in the paper']
    assert [part['part'] for part in last['parts']] == ['warm-up', 'calibration', 'module', 'joint'] and set(last['accuracy']) == {'1-shot', '5-shot'}
    assert {'eps, similar', 'eps, dissimilar'} <= set(last['eps'])
    right = [int(one) for one in last['right']['1-shot'].split(',')]
    assert len(right) == 4 and abs(sum(right)/3 - last['accuracy']['1-shot'][0]) < 1e-3

def test_half_of_the_loss_is_for_the_labels_of_the_teacher(monkeypatch):
    monkeypatch.syspath_prepend(nbs/'measured')
    import published_width as script
    network, images, logits = torch.nn.Linear(3, 5), torch.randn(6, 3), torch.randn(6, 5)
    callback = script.Distilled(network)
    callback.learn = SimpleNamespace(feature_calibration=True, training=True, xb=(images,), pred=logits, loss_grad=torch.tensor(2.))
    callback.after_loss()
    labels = (network(images)/4).softmax(-1)
    kl = F.cross_entropy(logits/4, labels) - F.cross_entropy(labels.log(), labels)
    assert torch.allclose(callback.learn.loss, (2 + 16*kl)/2, atol=1e-5)
    callback.learn.training = False
    before = callback.learn.loss
    callback.after_loss()
    assert callback.learn.loss is before

def test_rows_of_the_gpu_give_records_and_answers(tmp_path, monkeypatch):
    "A training at a tiny size and its student: the record, and the right answers of each task"
    monkeypatch.syspath_prepend(nbs/'measured')
    import published_width_gpu as script
    monkeypatch.setattr(script, 'settings', script.settings | tiny | dict(warmup_epochs=1, calibration_epochs=1, module_epochs=1, joint_epochs=1))
    monkeypatch.setattr(script, 'measured', dict(ablation=('both', 'neither')))
    monkeypatch.setattr(script, 'of_student', dict(width=4))
    monkeypatch.setattr(script, 'student_rows', script.student_rows[:1])
    few_pictures(tmp_path/'cifar100')
    script.main(tmp_path, '0')
    script.main(tmp_path, 'report', n_seeds=1)
    found = json.loads((tmp_path/'published_width_gpu.json').read_text())['rows']
    assert list(found) == ['neither', 'both', 'student, warm-up']
    assert [part['part'] for part in found['both'][0]['trainings']] == ['warm-up', 'calibration', 'module', 'joint']
    record = json.loads((tmp_path/'lab'/'ablation-cifar100-full.json').read_text())
    assert [one['claim'] for one in record['claims']] == ['both above neither']*2
    for row in record['rows']:
        right = [int(n) for n in found[row['name']][0]['right']['1-shot'].split(',')]
        assert np.allclose(np.mean(right)/0.75, row['ours']['1-shot']['mean'], atol=1e-3)
