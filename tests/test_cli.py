"The commands as a user meets them: their help, a run of seconds from training to a prediction, and bad input"
import csv, json, os, shutil, signal, subprocess, sys, threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image, ImageDraw

# Everything that these tests assume about the commands; `{...}` is filled in by the test
commands = SimpleNamespace(
    train='fcam_train --data glyphs --preset tiny --out {out}',
    train_folder='fcam_train --data {folder} --preset tiny --out {out}',
    train_long='fcam_train --data glyphs --out {out}',
    evaluate='fcam_eval {model} --data glyphs --n_episodes 20',
    predict='fcam_predict {model} {support} {image}',
    options=dict(
        fcam_train=['--data', '--path', '--splits', '--download', '--preset', '--width', '--seed', '--out'],
        fcam_eval=['model', '--data', '--n_way', '--n_shot', '--n_query', '--n_episodes', '--seed', '--out'],
        fcam_predict=['model', 'support', 'images', '--out'],
    ),
    kept=['model.safetensors', 'config.json', 'history.csv', 'result.json', 'curve.png', 'decision.png'],
    bad_input=2,                           # exit code
    interrupted=130,                       # exit code
    second_epoch='Epoch 2/',               # begins the printed line once the first epoch is over and kept
    says_what_it_kept='kept',
)

def program(name):
    "The installed command, beside the running interpreter or on the path"
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get('PATH', '')]))
    assert found, f'{name} is not installed'
    return found

def arguments(line, **places):
    first, *rest = [word.format(**places) for word in line.split(' ')]
    return [program(first), *rest]

def call(line, cwd, **places):
    "Run one command line in the folder `cwd`"
    return subprocess.run(arguments(line, **places), cwd=cwd, capture_output=True, text=True, timeout=600,
        env={**os.environ, 'MPLBACKEND': 'Agg', 'COLUMNS': '120'})

def refused(done, *words):
    "A command ended as it does for bad input, with a message that holds the words and no traceback"
    assert done.returncode == commands.bad_input, done.stdout + done.stderr
    assert 'Traceback' not in done.stderr, done.stderr
    missing = [word for word in words if str(word) not in done.stderr]
    assert not missing, f'{missing} not in: {done.stderr}'

@pytest.fixture(scope='module')
def run(tmp_path_factory):
    "One small training: its folder and what it printed"
    folder = tmp_path_factory.mktemp('train')
    done = call(commands.train, folder, out='run')
    assert done.returncode == 0, done.stdout + done.stderr
    return SimpleNamespace(folder=folder/'run', printed=done.stdout)

@pytest.fixture(scope='module')
def shapes(tmp_path_factory):
    "Three classes of two images each, and one more image"
    folder = tmp_path_factory.mktemp('shapes')
    for name in 'cross', 'disc', 'square':
        (folder/'support'/name).mkdir(parents=True)
        for i in range(2): draw(name, 10 + 6*i).save(folder/'support'/name/f'{i}.png')
    draw('disc', 13).save(folder/'disc.png')
    return folder

def draw(shape, margin):
    "An image of 64 by 64 pixels"
    image = Image.new('RGB', (64, 64), 'white')
    box, pen = (margin, margin, 64 - margin, 64 - margin), ImageDraw.Draw(image)
    if shape == 'disc': pen.ellipse(box, fill='black')
    elif shape == 'square': pen.rectangle(box, fill='black')
    else:
        pen.line(box, fill='black', width=6)
        pen.line((box[0], box[3], box[2], box[1]), fill='black', width=6)
    return image

# ---- help

@pytest.mark.parametrize('name', commands.options)
def test_help_names_the_options(name, tmp_path):
    done = call(f'{name} --help', tmp_path)
    assert done.returncode == 0, done.stderr
    assert [option for option in commands.options[name] if option not in done.stdout] == []
    assert list(tmp_path.iterdir()) == []

# ---- from training to a prediction

def test_train_keeps_its_files(run):
    empty = [name for name in commands.kept if not (run.folder/name).is_file() or not (run.folder/name).stat().st_size]
    assert empty == []
    for name in commands.kept:
        if name.endswith('.png'): Image.open(run.folder/name).verify()
        if name.endswith('.json'): assert json.loads((run.folder/name).read_text(encoding='utf-8'))

def test_history_has_every_epoch(run):
    with open(run.folder/'history.csv', newline='', encoding='utf-8') as f: rows = list(csv.DictReader(f))
    assert len(rows) >= 2 and all(None not in row and None not in row.values() for row in rows)

def test_train_prints_its_table(run):
    assert '±' in run.printed and '1-shot' in run.printed and '5-shot' in run.printed

def test_eval_prints_an_interval(run, tmp_path):
    done = call(commands.evaluate, tmp_path, model=run.folder)
    assert done.returncode == 0, done.stderr
    assert '±' in done.stdout

def test_eval_is_the_same_twice(run, tmp_path):
    first, second = (call(commands.evaluate, tmp_path, model=run.folder) for _ in range(2))
    lines = [[line for line in done.stdout.splitlines() if '±' in line] for done in (first, second)]
    assert lines[0] and lines[0] == lines[1]

def test_predict_names_a_class(run, shapes, tmp_path):
    done = call(commands.predict, tmp_path, model=run.folder, support=shapes/'support', image=shapes/'disc.png')
    assert done.returncode == 0, done.stderr
    assert 'disc.png' in done.stdout and any(name in done.stdout for name in ('cross', 'square', 'disc '))

# ---- bad input

def test_eval_without_model(tmp_path):
    refused(call(commands.evaluate, tmp_path, model='nowhere'), 'nowhere')

def test_train_without_folder(tmp_path):
    refused(call(commands.train_folder, tmp_path, folder='no_such_folder', out='run'), 'no_such_folder')

def test_train_with_a_class_too_small(tmp_path):
    "Five classes a set, one of the test classes with a single image"
    for part in 'train', 'val', 'test':
        for label in range(5):
            (tmp_path/'data'/part/f'{part}_{label}').mkdir(parents=True)
            few = part == 'test' and label == 3
            for i in range(1 if few else 21): draw('disc', 4 + i).save(tmp_path/'data'/part/f'{part}_{label}'/f'{i}.png')
    refused(call(commands.train_folder, tmp_path, folder='data', out='run'), 'test_3')

def test_predict_without_support(run, shapes, tmp_path):
    refused(call(commands.predict, tmp_path, model=run.folder, support='no_support', image=shapes/'disc.png'), 'no_support')

def test_predict_with_an_empty_class(run, shapes, tmp_path):
    support = shutil.copytree(shapes/'support', tmp_path/'support')
    (support/'ring').mkdir()
    refused(call(commands.predict, tmp_path, model=run.folder, support=support, image=shapes/'disc.png'), 'ring')

def test_predict_with_a_broken_image(run, shapes, tmp_path):
    (tmp_path/'broken.png').write_bytes(b'not an image')
    refused(call(commands.predict, tmp_path, model=run.folder, support=shapes/'support', image='broken.png'), 'broken.png')

def test_unknown_preset(tmp_path):
    refused(call(commands.train.replace('tiny', 'enormous'), tmp_path, out='run'), 'enormous')

# ---- Ctrl-C

def test_interrupt_says_what_it_kept(tmp_path):
    "Ctrl-C once the first epoch is over"
    listen = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # a job started in the background of a shell ignores it
    process = subprocess.Popen(arguments(commands.train_long, out='run'), cwd=tmp_path, text=True, preexec_fn=listen,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, 'MPLBACKEND': 'Agg', 'PYTHONUNBUFFERED': '1'})
    limit, printed, pressed = threading.Timer(300, process.kill), '', False
    limit.start()
    for line in process.stdout:
        printed += line
        if not pressed and line.startswith(commands.second_epoch): pressed = process.send_signal(signal.SIGINT) is None
    code = process.wait()
    limit.cancel()
    assert pressed, f'exit code {code} before the first epoch was over: {printed}'
    assert code == commands.interrupted and 'Traceback' not in printed, f'exit code {code}: {printed}'
    assert commands.says_what_it_kept in printed and 'run' in printed, printed
    assert (tmp_path/'run'/'model.safetensors').is_file() and (tmp_path/'run'/'history.csv').is_file()
