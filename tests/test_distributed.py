"Two processes train like one that adds up the gradients of both halves, stay equal to the bit, and survive together"
import os, shutil, signal, socket, subprocess, sys
from itertools import count
from multiprocessing import set_forkserver_preload
from unittest import mock

import pytest, torch
from torch.multiprocessing import start_processes

pytest.importorskip('accelerate')
pytestmark = pytest.mark.skipif(not hasattr(os, 'fork') or torch.cuda.is_available(), reason='ranks are forks, with gloo')

from fastai.callback.core import Callback
from fastai.callback.training import GradientAccumulation
from fcam.training.checkpoint import read_state
from fcam.data import FewShotData
from fcam.evaluate import Accuracy
from fcam.core.distributed import gathered, join, n_ranks, rank
from fcam.learner import fcam_learner, load_fcam
from fcam.training.stages import EpisodeValidation
from fcam.images.loaders import StoreLoader

settings = dict(preset='tiny', device='cpu', precision='float32', bs=192, n_query=3, n_iters=5, n_valid=4, warmup_lr=0.02, warmup_drops=(0.5,),
                warmup_epochs=2, calibration_epochs=2, calibration_lr=0.05, module_epochs=2, joint_epochs=2, joint_lr=0.01, activation_checkpointing=True)

@pytest.fixture(scope='module', autouse=True)
def one_thread():
    "As the ranks have it: sums come out the same to the bit"
    n = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n)

@pytest.fixture(scope='module')
def data(): return FewShotData.glyphs(n_per_class=12)

def one(i, n, port, folder, function, *args):
    "Rank `i`, with the environment of a launcher; what it prints and what the function gives lie in `folder`"
    torch.set_num_threads(1)
    sys.stdout = sys.stderr = open(folder/f'{i}.log', 'w', buffering=1)
    for number in (1, 2): os.dup2(sys.stdout.fileno(), number)
    os.environ |= dict(RANK=f'{i}', LOCAL_RANK=f'{i}', WORLD_SIZE=f'{n}', MASTER_ADDR='127.0.0.1', MASTER_PORT=f'{port}')
    signal.alarm(200)                                          # where each waits for the other
    torch.save(function(*args), folder/f'{i}.pt')
    gathered(None)                                             # nobody leaves while another computes

def launched(folder, function, *args, n=2):
    "What a function of this file gives on each of `n` ranks: forks of a process that has imported fcam and trained nothing"
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
    folder.mkdir(exist_ok=True)
    set_forkserver_preload(['fcam.learner'])
    start_processes(one, (n, port, folder, function, *args), nprocs=n, start_method='forkserver')
    return [torch.load(folder/f'{i}.pt', weights_only=False) for i in range(n)]

def nets(learn):
    "Every number that was trained or averaged, by net"
    left = learn.stages['calibration']
    found = dict(student=left.student, teacher=torch.nn.Sequential(left.encoder, left.head), meta=learn.model)
    return {name: {key: value.clone() for key, value in net.state_dict().items()} for name, net in found.items()}

def equal(a, b): return [(net, key) for net in a for key in a[net] if not torch.equal(a[net][key], b[net][key])] == []

# ---- as one process that accumulates

class Draw(Callback):
    "The same random numbers for the same part of a batch, on two ranks or in one process"
    order = -10
    def before_batch(self):
        place = self.iter if n_ranks() == 1 else 2*self.iter + rank()
        torch.manual_seed(10_000*self.epoch + place)

class Double(Callback):
    "Patches in float64: training enlarges a difference in the last digit, and there are few steps here to lose it in"
    order = 6
    def before_batch(self): self.learn.xb = (self.xb[0].double(),)
    def after_loss(self): self.learn.loss = self.loss.float()  # for the recorder

class Alternate(Callback):
    "Buffers of two ranks in turn, and their mean after a step"
    order = 4
    def buffers(self): return [b for b in self.model.buffers() if b.is_floating_point()]
    def put(self, values):
        for b, value in zip(self.buffers(), values): b.copy_(value)
    def before_fit(self): self.sets = [[b.clone() for b in self.buffers()] for _ in range(2)]
    def before_batch(self):
        if self.training: self.put(self.sets[self.iter%2])
    def before_step(self): self.sets[self.iter%2] = [b.clone() for b in self.buffers()]
    def after_step(self):
        mean = [(a + b)/2 for a, b in zip(*self.sets)]
        self.sets = [mean, mean]
        self.put(mean)

class Halves(StoreLoader):
    "The shares of two ranks, one after the other"
    def create_batches(self, samps):
        for batch in torch.tensor(list(samps)).split(self.bs):
            if len(batch) == self.bs: yield from (self.create_batch(batch[i::2]) for i in (0, 1))
    def __len__(self): return 2*super().__len__()

def trained(data, reference=False):
    "Both calls, each epoch of which is better than the last, so that it is the one that is kept"
    learn = fcam_learner(data, seed=5, cbs=[Draw(), Double()], **settings)
    learn.model.double()
    scores, accumulate = count(1), GradientAccumulation(settings['bs'])
    def in_halves(callback): callback.dls.train.__class__ = Halves
    halved = Callback(before_fit=in_halves)
    if reference: learn.add_cbs([Alternate(), accumulate, halved])
    with mock.patch.object(EpisodeValidation, 'score', lambda self: Accuracy([float(next(scores))]*2)):
        with learn.no_bar(), learn.no_logging(): learn.pretrain()
        start = {name: value.clone() for name, value in learn.encoder.state_dict().items()}
        if reference: learn.remove_cbs([accumulate, halved])
        learn.meta_train()
    return nets(learn), start

def test_like_one_process(data, tmp_path):
    "Weights, teacher and statistics of all four stages; images, tasks and crops are the same"
    (first, start), (second, _) = launched(tmp_path, trained, data)
    one, begin = trained(data, reference=True)
    assert equal(first, second)
    for net, state in one.items():
        for name, value in state.items():
            if name.endswith('in_proj_bias'): # a bias on the keys changes no softmax: its gradient is rounding alone, and Adam makes steps of it
                value, first[net][name] = (torch.cat([x.chunk(3)[0], x.chunk(3)[2]]) for x in (value, first[net][name]))
            if value.is_floating_point(): torch.testing.assert_close(first[net][name], value, rtol=1e-5, atol=1e-6, msg=lambda m: f'{net} {name}: {m}')
    moved = [name for name, value in begin.items() if value.is_floating_point() and not torch.equal(value, one['meta'][f'encoder.{name}'])]
    assert len(moved) > 50 and not equal(dict(a=one['student']), dict(a=one['teacher']))

# ---- a run in a folder

def watched(folder):
    "Names of what this process writes, makes, renames or removes in `folder` from now on"
    found = []
    def watch(event, arguments):
        writes = event == 'open' and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if not (writes or event in ('os.mkdir', 'os.rename', 'os.remove', 'os.rmdir')): return
        if isinstance(arguments[0], (str, os.PathLike)) and str(arguments[0]).startswith(str(folder)): found.append(str(arguments[0]))
    sys.addaudithook(watch)
    return found

tasks = [dict(n_shot=1, n_query=3, n_episodes=9), dict(n_way=3, n_shot=2, n_query=1, n_episodes=17), dict(n_shot=1, n_query=3, n_episodes=3, fresh=True)]
tasks += [dict(n_shot=1, n_query=3, n_episodes=9, n_patches=4, crops='grid')]
def accuracies(model, data): return [model.accuracy(data.test, **dict(n_views=2) | task).per_episode for task in tasks]

class End(Callback):
    "Both processes end at a place in a stage, as a launcher ends them, or nowhere"
    order = 30
    def __init__(self, place): self.place = place
    def before_batch(self):
        if (self.learn.stage, self.epoch, self.iter) == self.place: raise KeyboardInterrupt

def run(data, folder, place=None):
    "Both calls in a folder: the learner, its history, the next random number; or where it was interrupted"
    learn = fcam_learner(data, folder=folder/'run', seed=5, cbs=End(place), **settings)
    try: learn.pretrain().meta_train()
    except KeyboardInterrupt: return None
    rows = [{key: value for key, value in row.items() if key != 'seconds'} for row in learn.history]
    return learn, (nets(learn), rows, torch.rand(()).item())

def numbers(*args): return (run(*args) or [None, None])[1]

def ten_lines(data, folder):
    "And what comes after it"
    written = watched(folder)
    learn, trained = run(data, folder)
    learn.save_fcam(folder/'model')
    table = learn.results(shots=1, n_episodes=5, n_query=2, progress=False).astype(str)
    return *trained, accuracies(load_fcam(folder/'model', device='cpu'), data), str(learn.evaluate(n_query=3)), table, written

def test_run(data, tmp_path):
    "Rank 0 alone writes and prints; ended in the middle of an epoch, both go on to the bit"
    first, second = launched(tmp_path/'whole', ten_lines, data, tmp_path/'whole')
    (nets, rows, crops, found, accuracy, table, written), (*_, other_crops, _, other_accuracy, other_table, other_written) = first, second
    assert equal(nets, second[0]) and rows == second[1] and accuracy == other_accuracy and table.equals(other_table)
    assert crops != other_crops                                # random numbers of their own
    assert all(any(part in name for name in written) for part in ('checkpoint.pt', 'stages', 'model'))
    assert not [name for name in other_written if not name.startswith(str(tmp_path/'whole'/'model'))]   # saved by both, as both said
    assert 'warm-up: 2 epochs' in (tmp_path/'whole'/'0.log').read_text() and (tmp_path/'whole'/'1.log').read_text() == ''
    model = load_fcam(tmp_path/'whole'/'model', device='cpu')  # evaluation by one process
    for one, two in zip(accuracies(model, data), found): assert torch.equal(one, two)

    within, at_end = ('calibration', 1, 1), ('joint', 0, settings['n_iters'] - 1)
    assert launched(tmp_path/'cut', numbers, data, tmp_path/'cut', within) == [None]*2
    assert read_state(tmp_path/'cut'/'run'/'stages'/'calibration'/'checkpoint.pt')['epoch'] == 1
    with pytest.raises(ValueError, match='begun with num_processes 2, not 1'): fcam_learner(data, folder=tmp_path/'cut'/'run', seed=5, **settings)
    assert launched(tmp_path/'cut', numbers, data, tmp_path/'cut', at_end) == [None]*2
    again = launched(tmp_path/'cut', numbers, data, tmp_path/'cut')
    for whole, resumed in zip((first, second), again): assert equal(whole[0], resumed[0]) and whole[1:3] == resumed[1:]

def refusal(data):
    try: fcam_learner(data, **settings | dict(bs=75))
    except ValueError as e: return str(e)

def test_divides(data, tmp_path): assert all('take a multiple of 2' in said for said in launched(tmp_path, refusal, data))

def test_launcher(tmp_path):
    "The command of the notebook starts processes that find each other, on a CPU too"
    (tmp_path/'script.py').write_text("from torch import distributed as dist\nfrom fcam.core.distributed import *\njoin('cpu')\nprint(gathered(rank()), flush=True)\ndist.destroy_process_group()\n")
    command = [shutil.which('accelerate', path=os.path.dirname(sys.executable)), 'launch', '--multi_gpu', '--num_processes', '2', 'script.py']
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.count('[0, 1]') == 2, done.stdout + done.stderr
