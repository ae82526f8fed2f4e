"A run that is killed at any moment, in the middle of writing too, ends with the very weights of one that was not"
import json, os, subprocess, sys
from pathlib import Path

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
    return (folder/'killed'/'.checkpoint.pt.part').exists()

start = time.time()
assert os.waitpid(live('whole', 5), 0)[1] == 0
seconds, kills, in_write = time.time() - start, 0, 0
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
    for name in ('killed', 'killed-model'): os.rename(folder/name, folder/f'{name}-{kills}')
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
    assert [path.name for path in (tmp_path/'killed').glob('*.pt*')] == ['checkpoint.pt']
