"One row of one experiment from a shell, at the smallest size: ended twice by a signal, begun again, and the same as without"
import json, os, signal, subprocess, sys, time
from pathlib import Path

start = 'import sys; from fcam.paper.reproduce import reproduce_command; sys.argv[0] = "fcam_reproduce"; reproduce_command()'
options = ['--size', 'tiny', '--seeds', '1', '--rows', 'both', '--precision', 'float32', '--device', 'cpu', '--set', 'warmup_epochs=3', '--set', 'calibration_epochs=3']
environment = {**os.environ, 'OMP_NUM_THREADS': '1', 'MPLBACKEND': 'Agg',
               'PYTHONPATH': os.pathsep.join([str(Path(__file__).resolve().parent.parent), os.environ.get('PYTHONPATH', '')])}

def begin(folder, *words):
    "The command, running; a job started in the background of a shell ignores SIGINT, so it listens again"
    return subprocess.Popen([sys.executable, '-c', start, *words], cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

def call(folder, *words):
    "Exit code, standard output and standard error of the command"
    process = begin(folder, *words)
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err

def state(folder):
    "What was measured, without times, and when the files of the trainings were written"
    files = sorted((folder/'measured').iterdir()), sorted((folder/'trained').rglob('*.safetensors'))
    return [json.loads(file.read_text())['values'] for file in files[0]], [file.stat().st_mtime_ns for file in files[1]]

def test_a_row_is_ended_and_begun_again(tmp_path):
    for stage, number in {'warm-up': signal.SIGINT, 'calibration': signal.SIGKILL}.items():
        process = begin(tmp_path, 'ablation', *options, '--out', 'ended')
        while process.poll() is None and not list(tmp_path.glob(f'ended/trained/{stage}-*/*')): time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(600) != 0 and 'Traceback' not in process.stderr.read(), stage
    results = {name: call(tmp_path, 'ablation', *options, '--out', name) for name in ('ended', 'whole')}
    for code, out, err in results.values(): assert code == 0 and '# ablation: open' in out, out + err
    before, whole = state(tmp_path/'ended'), state(tmp_path/'whole')
    assert before[0] == whole[0] and len(list((tmp_path/'ended'/'trained').iterdir())) == 4
    assert (tmp_path/'ended'/'ablation-glyphs-tiny.md').read_text() in results['ended'][1]
    assert call(tmp_path, 'ablation', *options, '--out', 'ended')[0] == 0
    assert state(tmp_path/'ended') == before, 'trained or measured again'

def test_mistakes_and_list(tmp_path):
    code, out, err = call(tmp_path, 'ablation', '--rows', '12')
    assert code == 2 and 'is no row of ablation' in err and 'Traceback' not in err, out + err
    code, out, _ = call(tmp_path, 'list')
    assert code == 0 and 'divergence: ' in out and not list(tmp_path.iterdir())

def test_two_seeds_at_once(tmp_path):
    words = 'tsne', '--size', 'tiny', '--seeds', '2', '--rows', '1', '--precision', 'float32', '--device', 'cpu'
    process = begin(tmp_path, *words, '--jobs', '2', '--out', 'at once')
    while process.poll() is None and len(list(tmp_path.glob('at once/trained/*/.lock'))) < 2: time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(600) == 128 + signal.SIGTERM and 'Traceback' not in process.stderr.read()
    for name, more in {'at once': ['--jobs', '2'], 'one by one': []}.items():
        code, out, err = call(tmp_path, *words, *more, '--out', name)
        assert code == 0 and 'seed 1, row 1 of 1' in out, out + err
    assert state(tmp_path/'at once')[0] == state(tmp_path/'one by one')[0] and len(state(tmp_path/'at once')[0]) == 2
