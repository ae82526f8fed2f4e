"A run that is killed at any moment, in the middle of writing too, ends with the very weights of one that was not"
import json, os, subprocess, sys, warnings
from contextlib import redirect_stdout
from copy import deepcopy
from io import StringIO
from pathlib import Path
from unittest import mock

import pytest

n_kills = int(os.environ.get('FCAM_KILLS', 5))

# One process holds the imports and the data; each life of the run is a fork of it, and is killed by it
lives = '''
import json, os, random, signal, sys, time
from pathlib import Path
import torch
from fcam.data import FewShotData
from fcam.learner import fcam_learner
folder, n_kills = Path(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
data = FewShotData.glyphs(n_per_class=12)
settings = dict(preset='tiny', precision='float32', bs=64, n_query=3, n_iters=4, warmup_epochs=3, calibration_epochs=3,
                module_epochs=2, joint_epochs=3, joint_lr=1e-2)

def train(name, seed):
    "The ten lines, kept in a folder; what is left is the saved model and the history without its times"
    learn = fcam_learner(data, folder=folder/name, seed=seed, device='cpu', **settings)
    with learn.no_bar(), learn.no_logging(): learn.pretrain()
    learn.meta_train()
    learn.save_fcam(folder/f'{name}-model')
    rows = [{k: v for k, v in row.items() if k != 'seconds'} for row in learn.history]
    (folder/f'{name}.json').write_text(json.dumps(rows))

def live(name, seed):
    "A fork that trains; its process number"
    number = os.fork()
    if number: return number
    log = os.open(folder/f'{name}.log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1); os.dup2(log, 2)
    try: train(name, seed)
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
    os._exit(0)

def writing():
    "Whether a checkpoint is being written"
    return any((folder/'killed'/'stages').glob('*/.checkpoint.pt.part'))

start = time.time()
assert os.waitpid(live('whole', 5), 0)[1] == 0
seconds, kills, in_write, ends = time.time() - start, 0, 0, 0
while True:
    process, until = live('killed', 5), time.time() + random.uniform(0.1, max(1., 2.5*seconds/n_kills))
    hunting = kills%2 == 1                                     # every second one dies in a write
    while time.time() < until + 60*hunting and not (hunting and time.time() > until and writing()):
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended: break
        time.sleep(0.0005)
    else:
        in_write += writing()
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        kills += 1
        if kills < n_kills: continue
        ended, status = os.waitpid(live('killed', 5), 0)
    assert status == 0, status
    if kills >= n_kills: break
    ends += 1
    for name in ('killed', 'killed-model'): os.rename(folder/name, folder/f'{name}-{ends}')
print(json.dumps(dict(kills=kills, in_write=in_write, seconds=seconds)))
'''

@pytest.mark.skipif(not hasattr(os, 'fork'), reason='lives are forks')
def test_kills(tmp_path):
    from safetensors.torch import load_file
    done = subprocess.run([sys.executable, '-c', lives, str(tmp_path), str(n_kills)], capture_output=True, text=True, timeout=1800)
    log = (tmp_path/'killed.log').read_text() if (tmp_path/'killed.log').exists() else ''
    assert done.returncode == 0, done.stderr + log
    print(done.stdout)
    whole = load_file(tmp_path/'whole-model'/'model.safetensors')
    for folder in tmp_path.glob('killed-model*'):              # more than one where a run ended between two kills
        found = load_file(folder/'model.safetensors')
        assert whole.keys() == found.keys()
        assert not [name for name in whole if not whole[name].equal(found[name])]
    histories = [json.loads((tmp_path/f'{name}.json').read_text()) for name in ('whole', 'killed')]
    assert histories[0] == histories[1]
    assert json.loads(done.stdout.splitlines()[-1])['kills'] == n_kills
    assert not [*(tmp_path/'killed').rglob('*.pt*')] and len([*(tmp_path/'killed').rglob('stage.json')]) == 4

# ---- the folder of a run, and runs that start from it

settings = dict(preset='tiny', device='cpu', seed=1, bs=480, warmup_epochs=2, calibration_epochs=2, joint_epochs=2, color_jitter=0.4,
                precision='float32')

def callback(order, **methods):
    "A fastai callback of these methods"
    from fastai.callback.core import Callback
    return type('Own', (Callback,), dict(order=order, **methods))()

def press_ctrl_c(stage, epoch):
    def before_batch(self):
        if self.training and (self.learn.stage, self.epoch) == (stage, epoch): raise KeyboardInterrupt
    return callback(30, before_batch=before_batch)

def first_state():
    "Keeps the weights before the first batch, of the model and of the teacher where there is one"
    def before_batch(self):
        if hasattr(self, 'state'): return
        teacher = getattr(self.learn, 'momentum_teacher', None)
        nets = [self.model, teacher.teacher] if teacher else [self.model.encoder]
        self.state = [deepcopy(net.state_dict()) for net in nets]
    return callback(80, before_batch=before_batch)

def same(a, b): return all(x.equal(y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))

def later_is_better(self):
    "In place of the accuracy, so that trained weights are kept: steps, and what the metric learned"
    import torch
    from fcam.evaluate import Accuracy
    encoder, metric = self.candidate()
    learned = sum(float(p.detach().abs().sum()) for p in metric.parameters(recurse=False))
    return Accuracy((encoder.blocks[0].convs[1].num_batches_tracked + learned)*torch.ones(2))

def learner(data, folder=None, cbs=None, **changes):
    from fcam.learner import fcam_learner
    return fcam_learner(data, folder=folder, cbs=cbs, **(settings | changes))

def train(data, folder=None, cbs=None, **changes):
    "Both calls, in a folder where one is given"
    with mock.patch('fcam.training.stages.EpisodeValidation.score', later_is_better), redirect_stdout(StringIO()):
        return learner(data, folder, cbs, **changes).pretrain().meta_train()

@pytest.fixture(scope='module')
def data():
    from fcam.data import FewShotData
    return FewShotData.glyphs(n_per_class=30)

@pytest.fixture(scope='module')
def whole(data): return train(data)

@pytest.fixture(scope='module')
def folder(data, tmp_path_factory):
    "Of a run that was interrupted in every stage"
    folder = tmp_path_factory.mktemp('runs')/'run'
    for place in (('warm-up', 0), ('warm-up', 1), ('calibration', 0), ('calibration', 1), ('joint', 0)):
        with pytest.raises(KeyboardInterrupt): train(data, folder, press_ctrl_c(*place))
    return folder

@pytest.fixture(scope='module')
def resumed(data, folder):
    learn = train(data, folder)
    yield learn
    learn.release()

def test_interrupts_change_nothing(whole, resumed):
    "The weights and the history of a run that was interrupted in each stage are those of one that was not"
    for stage in ('calibration', 'joint'): assert any(row['kept'] for row in whole.history if row['stage'] == stage)
    assert same(resumed.model, whole.model) and list(resumed.stages) == list(whole.stages)
    for found, expected in zip(resumed.stages.values(), whole.stages.values()):
        for net, other in zip(found[:4], expected[:4]): assert net is other is None or same(net, other)
    histories = [[row | dict(seconds=None) for row in learn.history] for learn in (whole, resumed)]
    assert histories[0] == histories[1]
    resumed.pretrain().meta_train()                            # nothing is trained again
    assert len(resumed.history) == len(whole.history)

def test_interrupt_without_a_folder(data, whole):
    "The stage begins again, with what the one before left: not with the weights that the interrupt left"
    for stage in 'calibration', 'joint':
        learn = learner(data, cbs=press_ctrl_c(stage, 1))
        with mock.patch('fcam.training.stages.EpisodeValidation.score', later_is_better), redirect_stdout(StringIO()):
            with pytest.raises(KeyboardInterrupt): learn.pretrain().meta_train()
            assert stage not in learn.stages and learn.history[-1]['stage'] == stage
            learn.remove_cbs(cb for cb in learn.cbs[:] if cb.name == 'own')
            learn.pretrain().meta_train()
        assert list(learn.stages) == list(whole.stages) and same(learn.model, whole.model)

def test_compiled_network(data, whole, tmp_path):
    "One line before the training: the same losses up to rounding, interrupted or not, and weights of the same names"
    import torch
    graphs = []
    def traced(graph, inputs):                                 # a compiler that makes no code
        graphs.append(graph)
        return graph.forward
    def train(cbs=None):
        learn = learner(data, tmp_path/'compiled', cbs)
        learn.encoder.compile(backend=traced)
        with mock.patch('fcam.training.stages.EpisodeValidation.score', later_is_better), redirect_stdout(StringIO()):
            try: return learn.pretrain()
            finally: learn.release()
    with pytest.raises(KeyboardInterrupt): train(press_ctrl_c('calibration', 1))
    found = train()
    assert graphs
    assert [row['stage'] for row in found.history] == ['warm-up']*2 + ['calibration']*2
    for row, expected in zip(found.history, whole.history): assert row['train_loss'] == pytest.approx(expected['train_loss'], rel=1e-3)
    nets = ([left.student, left.encoder] for left in (learn.stages['calibration'] for learn in (found, whole)))
    for net, expected in zip(*nets): torch.testing.assert_close(net.state_dict(), expected.state_dict(), rtol=0.01, atol=1e-3)

def test_folder_has_the_model_and_the_head_of_each_stage(whole, resumed, folder):
    from fcam.model import load_fcam
    from safetensors.torch import load_file
    assert list(resumed.stages) == list(whole.stages)
    for name in whole.stages:
        kept = load_fcam(folder/'stages'/name, device='cpu')
        assert same(kept.encoder, whole.fcam(name).encoder) and same(kept.metric, whole.fcam(name).metric)
    left = whole.stages['calibration']
    for place, net in (('student', left.student[1]), ('.', left.head)):
        assert load_file(folder/'stages'/'calibration'/place/'head.safetensors')['weight'].equal(net.weight)
    assert (folder/'stages'/'warm-up'/'head.safetensors').exists()

def test_finished_run(data, whole, resumed, folder, monkeypatch):
    "It is loaded as it was left, in the precision that it had, and refuses what would change it"
    from fcam.data import FewShotData
    from fcam.metric import EMDMetric
    resumed.release()
    again = learner(data, folder)
    assert again.folder == folder and again.resumed == dict(stage='joint', epoch=2, n_epochs=2)
    again.pretrain().meta_train()                              # all is over: both return at once
    assert same(again.model, whole.model) and len(again.history) == len(whole.history)
    class OwnMetric(EMDMetric): "That no file can name"
    with pytest.raises(ValueError, match='OwnMetric cannot be saved'): again.meta_train(metric=OwnMetric())
    with pytest.raises(ValueError, match='warmup_epochs 2, not 7'): again.pretrain(warmup_epochs=7)
    with pytest.raises(ValueError, match='joint_epochs 2, not 3'): again.meta_train(joint_epochs=3)
    again.release()
    with pytest.raises(ValueError, match='joint_lr 0.0005, not 0.01'): learner(data, folder, joint_lr=0.01)
    with pytest.raises(ValueError, match='one of them has changed'): learner(FewShotData.glyphs(n_per_class=31), folder)
    monkeypatch.setattr('fcam.learner.choose_precision', lambda precision, device: 'bfloat16' if precision == 'auto' else precision)
    again = learner(data, folder, precision='auto')
    assert again.precision == 'float32'
    again.release()
    assert whole.folder is None
    whole.release()                                            # nothing to release: nothing happens

def test_folder_is_released_where_its_learner_fails(data, tmp_path):
    from fcam.core.files import lock_folder
    with mock.patch('fcam.learner.FCAMLearner', side_effect=ValueError('spoiled')):
        with pytest.raises(ValueError, match='spoiled'): learner(data, tmp_path/'spoiled')
    lock = lock_folder(tmp_path/'spoiled')                     # the lock of this process, which it takes anew
    assert lock.lock_counter == 1
    lock.release()

def test_changes_between_stages(data, tmp_path):
    "A stage that has not begun may have other settings, and in memory one may be trained again by others"
    one = train(data, tmp_path/'run', module_epochs=0, joint_epochs=0)
    one.release()
    assert list(one.stages) == ['warm-up', 'calibration']
    other = train(data, tmp_path/'run', module_epochs=0, joint_lr=1e-2)
    other.release()
    assert list(other.stages) == ['warm-up', 'calibration', 'joint'] and len(other.history) == 6
    assert same(other.stages['calibration'].encoder, one.stages['calibration'].encoder)
    in_memory, again = train(data, module_epochs=0), dict(module_epochs=0, joint_epochs=3)
    before = deepcopy(in_memory.stages)
    with redirect_stdout(StringIO()): in_memory.meta_train(**again).meta_train(**again)       # the second call trains nothing
    assert [row['stage'] for row in in_memory.history[6:]] == ['joint']*3 and list(in_memory.stages) == list(before)
    assert same(in_memory.stages['calibration'].encoder, before['calibration'].encoder)
    assert not same(in_memory.stages['joint'].encoder, before['joint'].encoder)

def test_start_from_another_run(data, whole, resumed, folder, tmp_path):
    "One shares the warm-up of `whole`, the next the calibration of that one"
    first, shared = first_state(), dict(warmup_epochs=0, calibration_epochs=0)
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.filterwarnings('error', 'You are shadowing')  # fastai, of names that clash
        calibrated = learner(data, tmp_path/'hot', first, warmup_epochs=0, class_temperature=1., start=folder/'stages'/'warm-up').pretrain()
    for found in first.state:                                  # the student, and the teacher as its copy
        for name, value in whole.stages['warm-up'].encoder.state_dict().items(): assert found[f'0.{name}'].equal(value)
    assert list(calibrated.stages) == ['calibration']
    assert calibrated.fcam().info['start'] == calibrated.initial_weights
    calibrated.release()
    first = first_state()
    trained = train(data, tmp_path/'meta', first, start=tmp_path/'hot', **shared)
    teacher = calibrated.stages['calibration'].encoder.state_dict()
    for name, value in teacher.items(): assert first.state[0][name].equal(value)
    assert list(trained.stages) == ['module', 'joint']
    trained.release()
    again = learner(data, tmp_path/'meta', **shared)           # goes on without the start
    assert again.initial_weights == trained.initial_weights and again.resumed['stage'] == 'joint'
    assert same(again.pretrain().meta_train().model, trained.model)
    again.release()
    with pytest.raises(ValueError, match='was begun with the weights in'): learner(data, tmp_path/'meta', start=folder/'stages'/'joint', **shared)
    with pytest.raises(ValueError, match='has no head'): learner(data, warmup_epochs=0, start=tmp_path/'meta').pretrain()
