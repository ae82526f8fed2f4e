"What is said of bad input, as a table: what is typed or called, and words that the sentence holds; nothing is begun, and nothing of the user is lost"
import json, os, subprocess, sys

import pytest

# Told before torch is loaded, so within a second. `photos` has a picture beside an empty folder, `hidden` a hidden file, `run` is a run that has a checkpoint,
# `model` a saved model without its config.json; a class of `few` has too few pictures, and `high` is a folder above one of classes.
at_once = {
    'fcam_train --sede 1': '--seed',
    'fcam_train --seed one': "'--seed'",
    'fcam_train --seed -1': '4294967295',
    'fcam_train --precision half': "is not one of 'auto', 'float32'",
    'fcam_train --preset enormous': "is not one of 'mini_imagenet'",
    'fcam_train --set bs=much': 'bs is',
    'fcam_train --set width': 'name=value',
    'fcam_train --set wdth=8': 'did you mean width',
    'fcam_train --n_query 0': '1<=x<=1000',
    'fcam_train --data no_such_folder': "'no_such_folder' is neither one of",
    'fcam_train --data ~no-such-user/photos': 'write the whole path',
    'fcam_train --data cub': '--path',
    'fcam_train --data cub --path nowhere': '--path',
    'fcam_train --config nowhere': 'nowhere is no record of a run',
    'fcam_train --config photos/a.png': 'is no record of a run',
    'fcam_train --resume nowhere': 'nowhere is no record of a run',
    'fcam_train --resume run --seed 1': '--seed does not go with --resume',
    'fcam_train --out file/below': 'Not a directory',
    'fcam_train --out hidden': "it holds '.mine'",
    'fcam_train --out photos': "it holds 'a.png'",
    'fcam_train --out run': 'go on by fcam_train --resume run',
    'fcam_train --out ~no-such-user/run': 'write the whole path',
    'fcam_eval nowhere': 'a model that comes with the package (cifar_fs)',
    'fcam_eval model': 'model has no config.json',
    'fcam_eval ~no-such-user/model': 'write the whole path',
    'fcam_eval cifar_fs --n_way 1': 'x>=2',
    'fcam_eval cifar_fs --n_patches 0': '1<=x<=1000',
    'fcam_eval cifar_fs --crops both': "is not one of 'independent', 'grid'",
    'fcam_eval cifar_fs --data nowhere': "'nowhere' is neither one of",
    'fcam_eval cifar_fs/ --data glyphs --out photos': 'is not empty',
    'fcam_predict photos photos/a.png --encoder nowhere': 'nowhere does not exist',
    'fcam_predict nowhere photos/a.png --encoder cifar_fs': "there is no folder 'nowhere'",
    'fcam_predict pictures.zip photos/a.png --encoder cifar_fs': 'if it is a zip, unpack it',
    'fcam_predict high photos/a.png --encoder cifar_fs': 'one for each class: give high/photos',
    'fcam_predict model photos/a.png --encoder cifar_fs': 'model does not hold two or more folders',
    'fcam_predict one photos/a.png --encoder cifar_fs': 'one does not hold two or more folders',
    'fcam_predict photos photos/a.png --encoder cifar_fs --figures -1': 'x>=0',
    'fcam_predict support support/x/1.png --encoder cifar_fs --out support/new': 'among the images',
    'fcam_predict support support/x/1.png --encoder cifar_fs --check nowhere': "there is no folder 'nowhere'",
    'fcam_predict support support/x/1.png --encoder cifar_fs --check support/x': 'holds no folders',
    'fcam_predict support support/x/1.png --encoder cifar_fs --out new/features': 'keeps those of images: change --out',
    'fcam_predict support support/x/1.png --learn_from_new --rule cosine': '--learn_from_new does not go with --rule',
    'fcam_reproduce ablation --rows 12': 'is no row of ablation',
    'fcam_reproduce ablation --out ~no-such-user/x': 'write the whole path',
}
# Told once torch is there: what only a look into images and weights can tell
typed = {
    'fcam_train --data cifar_fs': '--download',
    'fcam_train --data fc100/': '--download',
    'fcam_train --data photos --splits nowhere': 'neither a JSON file nor one of',
    'fcam_train --data photos': 'empty',
    'fcam_train --data few --preset tiny --n-query=3 --out new': 'test_3',
    'fcam_train --device gpu0': "'gpu0' is not there",
    'fcam_eval cifar_fs --device cuda:': "'cuda:' is not there",
    'fcam_reproduce ablation --device gpu0': "'gpu0' is not there",
    'fcam_train --start nowhere': 'nowhere does not exist',
    'fcam_predict support nowhere.png --encoder cifar_fs': "there is no image file 'nowhere.png'",
    'fcam_predict support new/*.png --encoder cifar_fs': "there is no image file 'new/*.png'",
    'fcam_predict support broken.png --encoder cifar_fs': 'broken.png',
    'fcam_predict support photos/b --encoder cifar_fs': 'there is no image',
    'fcam_eval cifar_fs --data glyphs --n_shot 200': 'fewer than n_shot + n_query',
    'fcam_eval cifar_fs --data glyphs --table': 'cifar_fs',
    'fcam_eval cifar_fs --baseline dn5': "'dn5' is not one of 'all', 'euclidean'",
    'fcam_predict support support/x/1.png --encoder cifar_fs --rule protonet': "'protonet' is not one of 'whole_and_parts'",
}
called = {
    "FewShotData.from_folder('nowhere')": "there is no folder 'nowhere'",
    "FewShotData.cub('nowhere')": 'give the folder CUB_200_2011',
    "FewShotData.glyphs(n_per_class=0)": 'n_per_class is 0',
    "fcam_learner(data, preset='enormous')": 'take one of mini_imagenet',
    "fcam_learner(data, wdth=8)": 'did you mean width',
    "fcam_learner(data, width=7)": 'even number',
    "fcam_learner(data, bs=1)": 'bs is 1',
    "fcam_learner(data, device='gpu0')": "'gpu0' is not there",
    "fcam_learner(data, precision='half')": 'take one of auto, float32',
    "fcam_learner(data, folder='')": 'write the whole path',
    "fcam_learner(data, folder='~no-such-user/run')": 'write the whole path',
    "fcam_learner(data, folder='run')": 'is no whole checkpoint',
    "fcam_learner(data, folder='file')": 'File exists',
    "fcam_learner(data, start='nowhere')": 'nowhere does not exist',
    "load_fcam('nowhere')": 'a model that comes with the package (cifar_fs)',
    "load_fcam('weights.pth')": 'would have to be unpickled',
    "load_fcam('cifar_fs').classifier({})": 'class',
    "load_fcam('cifar_fs').accuracy(data.test, n_shot=200)": 'fewer than n_shot + n_query',
}

@pytest.fixture(scope='module')
def here(tmp_path_factory):
    "A folder with what the table names"
    from PIL import Image
    folder, old = tmp_path_factory.mktemp('sentences'), os.getcwd()
    for name in ('photos/b', 'hidden', 'run/stages/warm-up', 'model/stages', 'support/x', 'support/y', 'one/x', 'high/photos/x'): (folder/name).mkdir(parents=True)
    (folder/'model/stages').rmdir()
    for name in ('photos/a.png', 'support/x/1.png', 'support/y/1.png', 'one/x/1.png'): Image.new('RGB', (40, 40)).save(folder/name)
    for name, n in {f'few/{part}/{part}_{i}': 1 if (part, i) == ('test', 3) else 9 for part in ('train', 'val', 'test') for i in range(5)}.items():
        (folder/name).mkdir(parents=True)
        for i in range(n): Image.new('RGB', (32, 32), (9*i, 0, 0)).save(folder/name/f'{i}.png')
    for name, text in {'hidden/.mine': 'mine', 'file': 'mine', 'run/run.json': '{}', 'run/stages/warm-up/checkpoint.pt': '', 'model/model.safetensors': 'mine', 'broken.png': 'no image', 'pictures.zip': 'zipped'}.items(): (folder/name).write_text(text)
    os.chdir(folder)
    yield folder
    os.chdir(old)

lines = '''
import json, shlex, sys
from click.testing import CliRunner
from fcam.commands import commands
from fcam.paper import reproduce
for line in json.load(sys.stdin):
    name, *words = line.split(' ')
    command = getattr(reproduce if 'reproduce' in name else commands, name.replace('fcam_', '') + '_command')
    done = CliRunner().invoke(command, words)
    status = done.exit_code if isinstance(done.exception, SystemExit) else repr(done.exception)
    print(json.dumps([line, status, done.output, 'torch' in sys.modules]), flush=True)
'''

def answers(table, folder):
    "What each line comes to, all in one process: exit status, what is printed, and whether torch is loaded by then"
    changes = dict(FCAM_HOME=str(folder/'cache'), OMP_NUM_THREADS='1', COLUMNS='120')
    done = subprocess.run([sys.executable, '-c', lines], input=json.dumps([*table]), cwd=folder, capture_output=True, text=True, env={**os.environ, **changes})
    return {line: answer for line, *answer in map(json.loads, done.stdout.splitlines()) if line in table}

@pytest.fixture(scope='module')
def told_at_once(here): return answers(at_once, here)

@pytest.fixture(scope='module')
def told(here): return answers(typed, here)

@pytest.mark.parametrize('line', at_once)
def test_told_at_once(line, told_at_once):
    status, said, torch_is_loaded = told_at_once[line]
    assert status == 2 and at_once[line] in said and not torch_is_loaded, (status, said, torch_is_loaded)

@pytest.mark.parametrize('line', typed)
def test_told(line, told):
    status, said, _ = told[line]
    assert status == 2 and typed[line] in said, (status, said)

@pytest.fixture(scope='module')
def names():
    from fcam.data import FewShotData
    from fcam.learner import fcam_learner, load_fcam
    return dict(FewShotData=FewShotData, fcam_learner=fcam_learner, load_fcam=load_fcam, data=FewShotData.glyphs(n_per_class=20))

@pytest.mark.parametrize('call', called)
def test_call(call, here, names):
    with pytest.raises((ValueError, OSError)) as error: eval(call, dict(names))
    assert called[call] in str(error.value)

def test_nothing_was_touched(here, told_at_once, told):
    "After all of the table"
    files = {path.relative_to(here).as_posix(): path.read_bytes() for path in here.rglob('*') if path.is_file()}
    assert files['hidden/.mine'] == files['file'] == files['model/model.safetensors'] == b'mine' and files['run/run.json'] == b'{}'
    assert not (here/'new').exists()
    assert not (here/'runs').exists() or not [path for path in (here/'runs').rglob('*') if path.is_file()]
