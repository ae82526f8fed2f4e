"""The constants of the paper (arXiv 2407.01967), and where the library uses them

Each number stands here with its place in the paper. Where the paper is silent we follow the code of
DeepEMD v2, on which it builds, and that is said. Who deviates on purpose changes this table too.
"""
import json
from importlib.resources import files
from math import inf

import numpy as np
import pytest
import torch
from fastai.callback.core import Callback
from fastai.learner import Learner
from torch import nn
from torch.nn import functional as F

from fcam.calibration import FeatureCalibration, MomentumTeacher, update_average
from fcam.data import FewShotData
from fcam.encoder import ResNet12
from fcam.episodes import Task
from fcam.evaluate import Accuracy
from fcam.learner import fcam_learner
from fcam.losses import cascade_kl
from fcam.metric import AdaptiveMetric, ModulateModule
from fcam.patches import RandomPatches
from fcam.training.checkpoint import Stage
from fcam.training.presets import Preset, presets
from fcam.training.stages import metric_of, stage_optimizer, stage_parts, stage_schedule

# Appendix B, (1) to (3): what differs from data set to data set
own = dict(
    mini_imagenet=dict(soft_weight=0.1, calibration_epochs=240, calibration_lr=0.01, joint_lr=5e-4),
    tiered_imagenet=dict(soft_weight=0.05, calibration_epochs=120, calibration_lr=0.001,
                         joint_lr=1e-4),
    cub=dict(soft_weight=0.5, calibration_epochs=240, calibration_lr=0.03, joint_lr=1e-3),
)
common = {
    'Appendix B': dict(n_train_patches=4, n_hard=1, momentum=0.999, n_patches=25, patch_size=84,
        warmup_epochs=120, weight_decay=5e-4, module_epochs=100, module_lr=1e-3, joint_epochs=100,
        n_iters=50, n_tasks_per_step=4, n_test=(5000, 600)),
    'section 5.2, the Modulate Module': dict(metric='adaptive', eps=0.1),
    'equation (11), uniform weights of the classes': dict(class_temperature=inf),
    'equation (12), soft labels by the teacher': dict(soft_target='teacher'),
    'equations (15) and (16), a plain softmax': dict(weights='softmax', sharpness=1., norm_power=0.,
                                                     weights_lr=0.),
    'equation (17), cosines as they are': dict(centre=False),
    'random crops': dict(crops='independent'),
    'the code of DeepEMD': dict(width=64, scale=(0.08, 1.), flips='random', bs=128, warmup_lr=0.1,
        warmup_drops=(0.25, 0.5, 0.75), score_temperature=12.5, n_query=15, sfc_epochs=100),
}

@pytest.mark.parametrize('benchmark', own)
@pytest.mark.parametrize('place', ['Appendix B, of its own', *common])
def test_preset(benchmark, place):
    said = common.get(place, own[benchmark])
    assert {name: getattr(presets[benchmark], name) for name in said} == said

@pytest.mark.parametrize('place', ['Appendix B, of its own', *common])
def test_settings_are_by_default_those_of_mini_imagenet(place):
    said = common.get(place, own['mini_imagenet'])
    assert {name: getattr(Preset(), name) for name in said} == said

def test_classes_by_default():
    calibration, teacher = FeatureCalibration(), MomentumTeacher()
    assert (calibration.momentum, teacher.momentum) == (0.999, 0.999), 'Appendix B: m'
    assert (calibration.patches.n_patches, calibration.n_hard) == (4, 1), 'Appendix B: n_p and l'
    assert calibration.soft_weight == 0.1, 'Appendix B, (1): lambda'
    assert calibration.class_temperature == inf, 'equation (11)'
    assert calibration.patches.size == RandomPatches().size == 84, 'Appendix B'
    assert RandomPatches().n_patches == 25, 'Appendix B: n'
    cut = RandomPatches()
    assert (cut.scale, cut.ratio, cut.flip) == ((0.08, 1.), (3/4, 4/3), 0.5), "DeepEMD's code"
    assert Task().counted().n_episodes == 5000, 'Appendix B: 1-shot'
    assert Task(n_shot=5).counted().n_episodes == 600, 'Appendix B: 5-shot'
    assert (Task().n_way, Task().n_query) == (5, 15), "tables 1 and 2; queries by DeepEMD's code"

def test_encoder_has_640_features():
    "Section 6, backbone; the widths 64, 160, 320 and 640 and the slope 0.1 are DeepEMD's code's"
    encoder = ResNet12()
    convolutions = [m for m in encoder.modules() if isinstance(m, nn.Conv2d)]
    widths = {m.out_channels for m in convolutions}
    assert (encoder.n_features, widths) == (640, {64, 160, 320, 640})
    assert sum(m.kernel_size == (3, 3) for m in convolutions) == 12
    slopes = {m.negative_slope for m in encoder.modules() if isinstance(m, nn.LeakyReLU)}
    assert slopes == {0.1}
    assert not [m for m in encoder.modules() if isinstance(m, nn.ReLU)]

def test_modulate_module():
    "Section 6, backbone: 2 layers, 640 + 16 = 656, 16 heads, 1280; section 5.2: 0.1 and exp"
    module = ModulateModule(640)
    layers = module.encoder.layers
    assert (len(layers), module.set_embedding.shape) == (2, (2, 16))
    for layer in layers:
        assert (layer.self_attn.embed_dim, layer.self_attn.num_heads) == (656, 16)
        assert (layer.linear1.in_features, layer.linear1.out_features) == (656, 1280)
        assert (layer.linear2.in_features, layer.linear2.out_features) == (1280, 656)
    query, proto = torch.randn(2, 3, 640), torch.randn(5, 3, 640)
    metric = AdaptiveMetric(640)
    assert metric.modulate is not None
    for predict in module, metric.pair_eps:
        torch.testing.assert_close(predict(query, proto), torch.full((2, 5), 0.1))
    fixed = AdaptiveMetric(640, modulated=False).pair_eps(query, proto)
    torch.testing.assert_close(fixed, torch.full((2, 5), 0.1))
    with torch.no_grad(): module.head.bias.fill_(0.1)
    torch.testing.assert_close(module(query, proto), torch.full((2, 5), 0.1*2.718281828**0.1),
                               rtol=1e-3, atol=0)

def test_teacher_moves_by_a_thousandth():
    "Equation (4): m of the teacher, 1 - m of the student"
    teacher, student = nn.Linear(3, 3), nn.Linear(3, 3)
    expected = 0.999*teacher.weight.detach() + 0.001*student.weight.detach()
    update_average(teacher, student, MomentumTeacher().momentum)
    torch.testing.assert_close(teacher.weight.detach(), expected)

def test_interval():
    "Appendix B: the mean with the 95 % interval"
    assert Accuracy(torch.tensor([40., 60.]).repeat(200)).ci95 == pytest.approx(0.98, abs=2e-3)

# Appendix B: the rate of each epoch. The warm-up's is DeepEMD's code's, a fifth every 30 epochs.
rates = dict(
    warmup=[0.1]*30 + [0.02]*30 + [0.004]*30 + [0.0008]*30,
    module=[1e-3]*60 + [1e-4]*30 + [1e-5]*10,
    joint=[0.5**(epoch//10) for epoch in range(100)],
)

@pytest.mark.parametrize('benchmark', own)
def test_rates(benchmark):
    said, preset = own[benchmark], presets[benchmark]
    expected = {'warm-up': rates['warmup'], 'module': rates['module'],
                'calibration': [said['calibration_lr']]*said['calibration_epochs'],
                'joint': [said['joint_lr']*factor for factor in rates['joint']]}
    for stage, lrs in expected.items():
        schedule = stage_schedule(preset, stage, metric_of(preset, 640))
        assert [schedule(i/len(lrs)) for i in range(len(lrs))] == pytest.approx(lrs), stage

@pytest.mark.parametrize('benchmark', own)
def test_optimizers(benchmark):
    "Appendix B: SGD with momentum 0.9, Adam for the module alone; Nesterov is DeepEMD's code's"
    for stage in 'warm-up', 'calibration', 'module', 'joint':
        opt = stage_optimizer(presets[benchmark], stage)([nn.Parameter(torch.zeros(3))], lr=0.1).opt
        group, = opt.param_groups
        assert group['weight_decay'] == 5e-4
        if stage == 'module':
            assert type(opt) is torch.optim.Adam and group['betas'] == (0.9, 0.999)
            continue
        assert type(opt) is torch.optim.SGD and (group['momentum'], group['dampening']) == (0.9, 0)
        assert group['nesterov'] == (stage != 'joint')

def test_classes_of_the_data():
    "Section 6, datasets: 64/16/20, 608 classes, 100/50/50"
    def counts(name):
        split = json.loads((files('fcam')/'splits'/f'{name}.json').read_text(encoding='utf-8'))
        return [len(split[part]) for part in ('train', 'val', 'test')]
    assert (counts('mini_imagenet'), counts('cub')) == ([64, 16, 20], [100, 50, 50])
    assert sum(counts('tiered_imagenet')) == 608

# ---- what a learner with these presets does

@pytest.fixture(scope='module')
def data():
    "Five classes a set, 16 images of noise a class: enough for 1-shot tasks with 15 queries"
    def images(part):
        pixels = np.random.randint(256, size=(5, 16, 90, 90, 3), dtype='uint8')
        return {f'{part} {i}': list(o) for i, o in enumerate(pixels)}
    return FewShotData.from_arrays(*map(images, ('train', 'valid', 'test')))

class Watch(Callback):
    "The weight of the soft labels and the steps of student and teacher, seen from outside"
    order = 60
    def after_loss(self):
        n, = self.yb[0].shape
        def by_image(model): return model(self.xb[0]).unflatten(0, (n, -1))
        self.n_patches, self.size = len(self.xb[0])//n, self.xb[0].shape[-1]
        with torch.no_grad():
            student, teacher = map(by_image, (self.model, self.momentum_teacher.teacher))
            hard = F.cross_entropy(student[:, 0], self.yb[0])
            soft = cascade_kl(*(o[:, 1:].flatten(0, 1) for o in (student, teacher)), inf)
            self.weight = ((self.loss_grad - hard)/soft).item()
    def before_step(self):
        self.before = [p.clone() for p in self.momentum_teacher.teacher.parameters()]
        self.rate = self.opt.opt.param_groups[0]['lr']
    def after_step(self):
        teacher, student = self.momentum_teacher.teacher, self.model
        self.teacher = torch.cat([p.flatten() for p in teacher.parameters()])
        before = torch.cat([p.flatten() for p in self.before])
        student = torch.cat([p.detach().flatten() for p in student.parameters()])
        self.expected = 0.999*before + 0.001*student
        self.moved = (student - before).abs().max().item()

@pytest.mark.parametrize('benchmark', own)
def test_step_of_calibration(benchmark, data):
    said, watch = own[benchmark], Watch()
    learn = fcam_learner(data, ResNet12(4), preset=benchmark, device='cpu', precision='float32',
                         cbs=watch, n_valid=1, valid_patches=1)
    learn.pretrain(warmup_epochs=0, calibration_epochs=1)
    assert (watch.n_patches, watch.size) == (4, 84)
    assert watch.weight == pytest.approx(said['soft_weight'], rel=1e-2)
    assert watch.rate == said['calibration_lr'] and watch.moved > 1e-4
    torch.testing.assert_close(watch.teacher, watch.expected, rtol=1e-6, atol=1e-4*watch.moved)
    assert (learn.patches.n_patches, learn.patches.size) == (25, 84)
    assert learn.fcam().n_test == (5000, 600)

def test_epoch_of_meta_training(data):
    "Appendix B: 50 iterations of 4 tasks; queries and temperature are DeepEMD's code's"
    preset = presets['mini_imagenet']
    learn = Learner(**stage_parts('joint', Stage(ResNet12(4)), data, preset))
    assert len(learn.dls.train) == 50*4
    assert len(learn.dls.one_batch()[0]) == 5*(1 + 15)
    assert learn.gradient_accumulation.n_acc == 4*5*15
    assert (learn.task_patches.patches.n_patches, learn.task_patches.patches.size) == (25, 84)
    assert learn.model.score_temperature == 12.5
