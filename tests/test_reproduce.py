"One row of one experiment from a shell, at the smallest size: interrupted, resumed, and the same as without"
import json, os, signal, subprocess, sys
from pathlib import Path

start = 'import sys; from fcam.paper.reproduce import reproduce_command; sys.argv[0] = "fcam_reproduce"; reproduce_command()'
options = ['--size', 'tiny', '--seeds', '1', '--rows', 'both', '--precision', 'float32', '--set', 'warmup_epochs=3', '--set', 'calibration_epochs=3']
environment = {**os.environ, 'OMP_NUM_THREADS': '1', 'PYTHONUNBUFFERED': '1', 'MPLBACKEND': 'Agg',
               'PYTHONPATH': os.pathsep.join([str(Path(__file__).resolve().parent.parent), os.environ.get('PYTHONPATH', '')])}

def begin(folder, *words):
    "The command, running"
    listen = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # a job started in the background of a shell ignores SIGINT
    return subprocess.Popen([sys.executable, '-c', start, *words], cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            preexec_fn=listen)

def call(folder, *words):
    "The command, over: exit code, what it printed, what it said"
    process = begin(folder, *words)
    printed, said = process.communicate(timeout=600)
    return process.returncode, printed, said

def interrupted(folder, after, number, out):
    "The command, sent a signal once it has printed a line that begins so"
    process = begin(folder, 'ablation', *options, '--out', out)
    for line in process.stdout:
        if line.startswith(after): break
    process.send_signal(number)
    rest, said = process.communicate(timeout=600)
    return process.returncode, rest, said

def values(folder):
    "What was measured, without times"
    return sorted(json.dumps(json.loads(file.read_text())['values']) for file in (folder/'measured').iterdir())

def test_a_row_is_interrupted_and_resumed(tmp_path):
    code, printed, said = call(tmp_path, 'ablation', *options, '--out', 'whole')
    assert code == 0 and '# ablation: not decided at this size' in printed, printed + said
    for stage, number in {'warm-up': signal.SIGTERM, 'calibration': signal.SIGINT, 'joint': signal.SIGTERM}.items():
        code, printed, said = interrupted(tmp_path, f'{stage}: epoch 1 of' if stage != 'joint' else 'module: 1 epoch', number, 'parts')
        if code == 0: continue                                 # so fast that the signal came too late
        assert code == 128 + number and 'Traceback' not in said, printed + said
        assert 'what is finished is kept in parts' in printed and 'to go on: fcam_reproduce ablation' in printed, printed
    code, printed, said = call(tmp_path, 'ablation', *options, '--out', 'parts')
    assert code == 0, printed + said
    assert 'going on after epoch' in (tmp_path/'parts'/'log.txt').read_text()
    assert values(tmp_path/'parts') == values(tmp_path/'whole')
    found = json.loads((tmp_path/'parts'/'ablation-glyphs-tiny.json').read_text())
    assert found['complete'] and [row['name'] for row in found['rows']] == ['both'] and found['verdict'] == 'not decided at this size'
    assert (tmp_path/'parts'/'ablation-glyphs-tiny.md').read_text() in printed
    trained = sorted(path.name for path in (tmp_path/'parts'/'trained').iterdir())
    before = [path.stat().st_mtime_ns for path in (tmp_path/'parts'/'trained').rglob('*')]
    assert len(trained) == 3 and call(tmp_path, 'ablation', *options, '--out', 'parts')[0] == 0
    assert before == [path.stat().st_mtime_ns for path in (tmp_path/'parts'/'trained').rglob('*')], 'trained again'

def test_what_is_wrong_is_told(tmp_path):
    for words, text in {('table3',): 'is no experiment', ('ablation', '--size', 'huge'): '--size is', ('ablation', '--rows', '12'): 'is no row of ablation'}.items():
        code, printed, said = call(tmp_path, *words)
        assert code == 2 and text in said and 'Traceback' not in said, printed + said

def test_list_and_help(tmp_path):
    code, printed, _ = call(tmp_path, 'list')
    assert code == 0 and 'kl_ukd: ' in printed and not list(tmp_path.iterdir())
    code, printed, _ = call(tmp_path, '--help')
    assert code == 0 and '--rows' in printed and 'ablation' in printed
