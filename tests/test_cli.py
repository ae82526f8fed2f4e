"The commands as a user meets them: their help, a run of seconds from training to a prediction, signals, pipes, odd names, and bad input"
import csv, json, os, shlex, shutil, signal, subprocess, sys, threading, time
from pathlib import Path
from types import SimpleNamespace

import numpy as np, pytest, torch
from click.testing import CliRunner
from PIL import Image, ImageDraw

train = 'fcam_train --data {folder} --preset tiny --n-query=3 --out {out}'
options = dict(
    fcam_train=['--data', '--path', '--splits', '--split_seed', '--download', '--size', '--skip_broken', '--preset', '--n_query', '--warmup_epochs', '--calibration_epochs', '--module_epochs', '--joint_epochs',
                '--set', '--seed', '--device', '--precision', '--out', '--start', '--config', '--resume', '--table', '--quiet', '--version', 'mini_imagenet', 'tiny'],
    fcam_eval=['model', '--data', '--table', '--baseline', '--emd_episodes', '--n_way', '--n_shot', '--n_query', '--n_episodes', '--n_views', '--fresh', '--mirror', '--n_patches', '--crops', '--mean', '--allow_seen',
               '--seed', '--device', '--precision', '--out', '--quiet', '--version', 'simpleshot'],
    fcam_predict=['support', 'images', '--encoder', '--rule', '--none_of_these', '--figures', '--device', '--precision', '--out', '--quiet', '--version'],
)
every = dict(fcam_train='--help-all', fcam_eval='--help-all', fcam_predict='--help')
first = dict(fcam_train=['--data', '--download', '--preset', '--set', '--device', '--out', '--resume', '--quiet'],
             fcam_eval=['--data', '--download', '--table', '--baseline', '--n_shot', '--n_episodes', '--device', '--out'])
files = ['model.safetensors', 'config.json', 'run.json', 'history.csv', 'result.json', 'log.txt', 'curve.png', 'decision.png']
facts = ['command_line', 'settings', 'seed', 'source', 'data', 'machine', 'date', 'hours', 'results']  # in result.json
odd_names = ['US$_0', '山', "it's", '$x^2$', 'new\nline', '-dash', '\\frac{', '%s', '{b}', 'image', 'label', b'\xff\xfe']
quick_help = 1.                            # seconds; only the fastest of three counts

def program(name):
    "The installed command, beside the running interpreter or on the path"
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get('PATH', '')]))
    assert found, f'{name} is not installed'
    return found

def environment(**changes): return {'OMP_NUM_THREADS': '1', **os.environ, 'COLUMNS': '120', 'PYTHONUNBUFFERED': '1', **changes}  # runs are compared to the bit

def call(line, cwd, changes={}, **places):
    "Run one command line in the folder `cwd`, in a process of its own"
    first, *rest = [word.format(**places) for word in line.split(' ')]
    return subprocess.run([program(first), *rest], cwd=cwd, capture_output=True, text=True, timeout=600, env=environment(**changes))

def shell(line, cwd, **changes):
    "Run a line of a shell that finds the commands"
    path = os.pathsep.join([str(Path(program('fcam_train')).parent), os.environ.get('PATH', '')])
    return subprocess.run(line, shell=True, cwd=cwd, capture_output=True, text=True, timeout=600, env=environment(PATH=path, **changes))

@pytest.fixture
def here(tmp_path, monkeypatch):
    "Run one command line in `tmp_path`, in this process and so without its seconds of imports"
    monkeypatch.chdir(tmp_path)
    def run(line, **places):
        import torch
        from fcam.commands import commands
        name, *words = [word.format(**places) for word in line.split(' ')]
        n_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try: return CliRunner().invoke(getattr(commands, name.replace('fcam_', '') + '_command'), words)
        finally: torch.set_num_threads(n_threads)
    return run

def passed(done):
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output

def table(printed): return [line.split() for line in printed.splitlines() if '±' in line]

def history(folder):
    with open(folder/'history.csv', newline='', encoding='utf-8') as file: return list(csv.DictReader(file))

@pytest.fixture(scope='module')
def run(tmp_path_factory, photos):
    "One small training: its folder and what it printed"
    folder = tmp_path_factory.mktemp('train')
    done = call(train, folder, folder=photos, out='run')
    assert done.returncode == 0, done.stdout + done.stderr
    return SimpleNamespace(folder=folder/'run', printed=done.stdout, said=done.stderr)

@pytest.fixture(scope='module')
def shapes(tmp_path_factory):
    "Three classes of two images each, and one more image"
    folder = tmp_path_factory.mktemp('shapes')
    for name in 'cross', 'disc', 'square': draw_class(folder/'support'/name, name, 2)
    draw('disc', 13).save(folder/'disc.png')
    return folder

@pytest.fixture(scope='module')
def photos(tmp_path_factory):
    "Twelve classes of nine images each"
    folder = tmp_path_factory.mktemp('photos')
    for i in range(12): draw_class(folder/f'class_{i:02d}', 'disc', 9)
    return folder

def draw_class(folder, shape, n):
    "A folder of images"
    os.makedirs(folder)
    for i in range(n): draw(shape, 4 + 3*i).resize((32, 32)).save(os.path.join(os.fsdecode(folder), f'{i}.png'))

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

@pytest.mark.parametrize('name', options)
def test_help_names_the_options_at_once(name, tmp_path):
    seconds = []
    for _ in range(3):
        start = time.time()
        done = call(f'{name} {every[name]}', tmp_path)
        seconds.append(time.time() - start)
    assert done.returncode == 0, done.stderr
    assert [option for option in options[name] if option not in done.stdout] == []
    assert list(tmp_path.iterdir()) == []
    assert min(seconds) < quick_help

@pytest.mark.parametrize('name', first)
def test_help_begins_with_what_people_use(name, here):
    "Eight options on a screen, and how to see the others"
    printed = passed(here(f'{name} --help'))
    shown = [line.split()[0] for line in printed.splitlines() if line.startswith('  --')]
    assert shown == [*first[name], '--help_all', '--version', '--help'] and len(printed.splitlines()) <= 45, printed

def test_all_options_come_with_one_rule_a_line(here):
    printed = passed(here('fcam_eval --help_all')).splitlines()
    assert {'cosine', 'emd', 'frn'} <= {line.split()[0] for line in printed[printed.index('  rules:'):] if line.strip()}

# ---- from training to a prediction

def test_train_keeps_its_files(run):
    empty = [name for name in files if not (run.folder/name).is_file() or not (run.folder/name).stat().st_size]
    assert empty == []
    for name in files:
        if name.endswith('.png'): Image.open(run.folder/name).verify()
        if name.endswith('.json'): assert json.loads((run.folder/name).read_text(encoding='utf-8'), parse_constant=pytest.fail)

def test_result_repeats_the_run(run):
    result = json.loads((run.folder/'result.json').read_text(encoding='utf-8'))
    assert [name for name in facts if name not in result] == []
    assert len(result['data']['classes']['test']) == 2 and result['machine']['versions']['torch']

def test_history_has_every_epoch(run):
    rows = history(run.folder)
    assert [row['total_epoch'] for row in rows] == ['1', '2', '3', '4'] and {row['epoch'] for row in rows} == {'1'}
    assert all(None not in row and None not in row.values() and row['kept'] in ('True', 'False') for row in rows)
    assert all(float(row['train_loss']) > 0 for row in rows)

def test_train_says_how_long_it_takes(run):
    "A line an epoch where nobody watches, the same in the log; the table; nothing that a user cannot act on"
    lines = [line for line in run.printed.splitlines() if ' 1 of 1' in line]
    assert len(lines) == 4 and all('left: 0:' in line for line in lines)
    assert '\r' not in run.printed and not run.said, run.said
    log = (run.folder/'log.txt').read_text(encoding='utf-8')
    assert [line for line in lines if line not in log] == []
    assert '±' in run.printed and '1-shot' in run.printed and '5-shot' in run.printed
    assert 'learns little: chance is 50 %' in run.printed       # two classes

def test_eval_prints_the_table_and_more(run, here):
    "Rows of the last stage, and those of all stages and of exact transport"
    printed = passed(here('fcam_eval {model} --table --quiet', model=run.folder))
    assert len(table(printed)) == 17 and len(table(run.printed)) == 2
    assert [row for row in table(printed) if row in table(run.printed)] == table(run.printed)
    again = passed(here('fcam_train --config {model}/result.json --table --quiet --out again', model=run.folder))
    assert table(again) == table(printed)

def test_eval_gives_a_number_of_the_table(run, photos, here, tmp_path):
    row, = table(passed(here('fcam_eval {model} --n-query 4', model=run.folder)))
    own = ['joint', *'Adaptive Metric (8, 4), structured FC'.split()]
    joint, = [r for r in table(run.printed) if r[:7] == own]
    assert row[-3:] == joint[7:10]
    out = tmp_path/'runs'/f'eval-{photos.name}'
    assert len(json.loads((out/'result.json').read_text(encoding='utf-8'))['model']['sha256']) == 64

def test_predict_names_a_class(run, shapes, here):
    printed = passed(here('fcam_predict {shapes}/support {shapes}/disc.png --encoder {model}', model=run.folder, shapes=shapes))
    assert 'disc.png' in printed and any(name in printed for name in ('cross', 'square', 'disc '))
    assert printed.index('disc.png  ') < printed.index('figures of what decided are being drawn into runs/predict') < printed.index('everything is in')

def test_default_encoder_names_a_class_at_once(shapes, tmp_path):
    "No training, no network, from any folder"
    offline = dict.fromkeys(('http_proxy', 'https_proxy', 'HTTP_PROXY', 'HTTPS_PROXY'), 'http://127.0.0.1:9') | dict(HF_HUB_OFFLINE='1')
    done = call('fcam_predict {shapes}/support {shapes}/disc.png', tmp_path, offline, shapes=shapes)
    assert done.returncode == 0, done.stderr
    row, = [line for line in done.stdout.splitlines() if 'disc.png' in line]
    assert 'disc' in row.replace('disc.png', ''), done.stdout

@pytest.mark.skipif(torch.cuda.is_available(), reason='on a GPU the second run may be rounded in another way')
def test_run_is_repeated_with_another_option(run, here, tmp_path):
    passed(here('fcam_train --config {model}/result.json --module_epochs 0 --joint_epochs 0 --out again', model=run.folder))
    assert [row['train_loss'] for row in history(tmp_path/'again')] == [row['train_loss'] for row in history(run.folder)[:2]]

# ---- names, pipes, terminals

def test_odd_names_survive(shapes, tmp_path):
    "A terminal that knows ASCII alone, a pipe that closes after a line, classes that break plots and encodings"
    for name in odd_names: draw_class(os.path.join(os.fsencode(tmp_path/'data'), os.fsencode(name)), 'disc', 9)
    done = shell(f'{train.format(folder="data", out="run")} | head -1', tmp_path, PYTHONIOENCODING='ascii')
    assert done.returncode == 0 and not done.stderr and len(done.stdout.splitlines()) == 1, done.stdout + done.stderr
    assert [name for name in files if not (tmp_path/'run'/name).is_file()] == []
    done = shell(f'fcam_predict run data {shapes}/disc.png >&-', tmp_path, PYTHONIOENCODING='ascii')
    assert done.returncode == 0 and not done.stderr, done.stderr
    with open(tmp_path/'runs'/'predict'/'predictions.csv', newline='', encoding='utf-8') as f: row, = csv.DictReader(f)
    assert row['image'].endswith('disc.png') and len(row) == 3 + len(odd_names)

def test_a_closed_pipe_loses_no_answer(shapes, tmp_path):
    "Results are kept before the table is printed, and what `fit` prints is no reason to stop"
    done = shell(f'fcam_predict {shapes}/support {shapes}/disc.png --figures 0 | head -1', tmp_path)
    assert done.returncode == 0 and not done.stderr and len(done.stdout.splitlines()) == 1, done.stdout + done.stderr
    assert {'predictions.csv', 'result.json'} <= {file.name for file in (tmp_path/'runs'/'predict').iterdir()}

def test_a_note_loses_no_answer_either(shapes, tmp_path):
    "Many pictures of another kind: what is said of them comes before the answers are kept"
    rng = np.random.default_rng(0)
    for name in 'cross', 'disc': draw_class(tmp_path/'support'/name, name, 8)
    (tmp_path/'new').mkdir()
    for i in range(24): Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(tmp_path/'new'/f'{i}.png')
    done = shell('fcam_predict support new --figures 0 --out whole', tmp_path)
    assert 'of another kind or of other classes' in done.stdout
    done = shell('fcam_predict support new --figures 0 | head -1', tmp_path)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    assert {'predictions.csv', 'result.json'} <= {file.name for file in (tmp_path/'runs'/'predict').iterdir()}

def test_predict_tells_what_is_doubtful(shapes, here, tmp_path):
    "A picture under two labels, classes that are not known, cells that a spreadsheet would compute, pipes among the files"
    for name in 'disc', 'square': shutil.copytree(shapes/'support'/name, tmp_path/'support'/f'={name}')
    shutil.copyfile(shapes/'support'/'disc'/'0.png', tmp_path/'support'/'=square'/'copy.png')
    shutil.copytree(tmp_path/'support', tmp_path/'check')
    shutil.copytree(shapes/'support'/'cross', tmp_path/'check'/'cross')
    os.mkfifo(tmp_path/'support'/'=disc'/'pipe.png')
    printed = passed(here('fcam_predict {at}/support {shapes}/disc.png --figures 0 --check {at}/check', at=tmp_path, shapes=shapes))
    assert 'the same picture in several classes: =disc/0.png, =square/copy.png' in printed, printed
    assert '1 that are no files but pipes or devices (pipe.png)' in printed
    assert '2 of 7 pictures count as wrong, since their classes are not known: cross; of the other 5' in printed
    with open(tmp_path/'runs'/'predict'/'predictions.csv', newline='', encoding='utf-8') as file: row, = csv.DictReader(file)
    assert row['label'].startswith("'=")
    assert json.loads((tmp_path/'runs'/'predict'/'result.json').read_text(encoding='utf-8'))['results'][0]['label'].startswith('=')

# ---- signals

def follow(line, cwd, until, number):
    "Start a command, send it the signal once a line begins with `until`; what it printed, and its exit code"
    listen = lambda: signal.signal(number, signal.SIG_DFL)  # a job started in the background of a shell ignores SIGINT
    first, *rest = shlex.split(line)
    process = subprocess.Popen([program(first), *rest], cwd=cwd, text=True, preexec_fn=listen, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment())
    limit, printed, pressed = threading.Timer(300, process.kill), '', False
    limit.start()
    for text in process.stdout:
        printed += text
        if not pressed and text.startswith(until): pressed = process.send_signal(number) is None
    code = process.wait()
    limit.cancel()
    assert pressed and 'Traceback' not in printed and code == 128 + number, f'exit code {code}: {printed}'
    return printed

def test_signal_ends_a_run_that_goes_on(photos, tmp_path):
    "SIGTERM comes once the first epoch is over; the words that are printed then go on with the run, which Ctrl-C ends again"
    printed = follow(train.format(folder=photos, out="'my run'") + ' --warmup_epochs 100000', tmp_path, 'warm-up: epoch 1 of', signal.SIGTERM)
    assert 'is kept in' in printed and 'my run' in printed, printed
    assert (tmp_path/'my run'/'model.safetensors').is_file() and json.loads((tmp_path/'my run'/'result.json').read_text())['interrupted']
    line, = [line.removeprefix('to go on: ') for line in printed.splitlines() if line.startswith('to go on: ')]
    n_epochs = len(history(tmp_path/'my run'))
    printed = follow(line, tmp_path, f'warm-up: epoch {n_epochs + 1} of', signal.SIGINT)
    assert f'going on after epoch {n_epochs} of 100000' in printed, printed

@pytest.mark.parametrize('when', ['once the data are loaded', 'once it is begun'])
def test_killed_before_its_first_checkpoint(when, photos, tmp_path):
    "There is nothing to go on from, so the same command begins the run again; another one does not"
    line, folder = train.format(folder=photos, out='run') + ' --quiet', tmp_path/'run'
    first, *rest = shlex.split(line.replace(' --quiet', '' if 'loaded' in when else ' --quiet'))
    process = subprocess.Popen([program(first), *rest], cwd=tmp_path, text=True, stdout=subprocess.PIPE, env=environment())
    if 'loaded' in when: assert process.stdout.readline().startswith('no split given')
    else:
        while not (folder/'run.json').exists() and process.poll() is None: time.sleep(0.001)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL and not [*folder.rglob('checkpoint.pt')]
    if 'begun' in when: assert 'go on by fcam_train --resume run' in call(f'{line} --seed 1', tmp_path).stderr
    done = call(line, tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(history(folder)) == 4 and 'FewShotData' in (folder/'log.txt').read_text(encoding='utf-8')
