"What people give that nobody thought of: each is answered, or refused in one sentence, and nothing is lost"
import json, os, pickle, signal, subprocess, sys, time, warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from unicodedata import normalize

import numpy as np, pytest, torch
from fastai.callback.core import Callback
from PIL import Image
from safetensors.torch import load_file, save_file
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from torch import nn

from fcam.classify import FewShotClassifier
from fcam.core.files import save_tensors, write_json
from fcam.encoders.named import named_encoder
from fcam.images.folders import class_files, image_files

quiet = dict(device='cpu', verbose=False)

def picture(seed, side=40): return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8))

def colours(n=4, shift=0): return {name: [Image.new('RGB', (40, 40), tuple(c + 9*i + shift for c in rgb)) for i in range(n)] for name, rgb in dict(blue=(9, 9, 150), green=(9, 150, 9), red=(150, 9, 9)).items()}

def small(**settings):
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 12, 3, stride=2))
    return layers if settings.pop('plain', False) else FewShotClassifier(layers.eval(), size=32, cells=3, **quiet, **settings)

def table(n=8, seed=0):
    y = np.repeat(['a', 'b', 'c'], n)
    return np.random.default_rng(seed).normal(size=(3*n, 6)) + 3*np.eye(6)[:3].repeat(n, 0), y

def features(**settings): return FewShotClassifier(None, verbose=False, **settings)

def said(function):
    "All warnings"
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter('always')
        function()
    return '\n'.join(str(one.message) for one in found)

def refused(function, *words, errors=ValueError):
    with pytest.raises(errors) as found: function()
    text = str(found.value)
    assert all(word in text for word in words) and '\n' not in text and len(text) < 500, text

# ---- 1: saving

loop = '''import sys, numpy as np
from fcam.classify import FewShotClassifier
x, y = np.random.default_rng(0).normal(size=(3000, 300)), np.arange(3000)%3
both = [FewShotClassifier(None, rule='cosine', verbose=False).fit(x + k, y) for k in (0, 1)]
print('ready', flush=True)
while True:
    for one in both: one.save(sys.argv[1])'''

def saving(folder): return subprocess.Popen([sys.executable, '-c', loop, str(folder)], stdout=subprocess.PIPE, text=True, env=os.environ | dict(OMP_NUM_THREADS='1'))

def test_a_kill_while_saving_loses_nothing(tmp_path):
    "Neither the old classifier nor the folder"
    x, y = table(20)
    features().fit(x, y).save(tmp_path)
    for i in range(4):
        process = saving(tmp_path)
        assert process.stdout.readline() == 'ready\n'
        time.sleep(0.05 + 0.07*i)
        process.kill()
        process.wait()
        FewShotClassifier.load(tmp_path)
    features().fit(x, y).save(tmp_path)
    assert len([*tmp_path.iterdir()]) == 3                     # features, JSON and lock: nothing is left behind

def test_two_processes_save_into_one_folder(tmp_path):
    both = [saving(tmp_path) for _ in range(2)]
    for process in both: assert process.stdout.readline() == 'ready\n'
    while not (tmp_path/'classifier.json').exists(): time.sleep(0.01)
    begin = time.time()
    while time.time() - begin < 3: FewShotClassifier.load(tmp_path)
    assert [process.poll() for process in both] == [None, None]
    for process in both:
        process.kill()
        process.wait()

def test_a_failed_save_leaves_the_old_one(tmp_path):
    x, y = table()
    first = features().fit(x, y)
    first.save(tmp_path)
    other = features().fit(x[::-1], y)
    other.groups_ = [date(2026, 1, 1)]*len(y)
    with pytest.raises(Exception): other.save(tmp_path)
    assert np.array_equal(FewShotClassifier.load(tmp_path).predict_proba(x), first.predict_proba(x))

def test_files_of_others_are_not_replaced(tmp_path):
    clf = features().fit(*table())
    for text in '{"mine": 1}', 'no JSON', '[]':
        (tmp_path/'classifier.json').write_text(text)
        refused(lambda: clf.save(tmp_path), 'classifier.json was not written by save')
        assert (tmp_path/'classifier.json').read_text() == text
    (tmp_path/'classifier.json').unlink()
    (tmp_path/'features_of_mine.safetensors').write_text('mine')
    clf.save(tmp_path)
    clf.save(tmp_path)
    assert (tmp_path/'features_of_mine.safetensors').read_text() == 'mine'

def as_before(folder):
    "A folder as version 0.3 wrote it"
    from fcam.classifiers import saved
    known = json.loads((folder/'classifier.json').read_text()) | dict(format=2)
    del known['digest'], known['digests'], known['found']['exponent_']
    features = (folder/known.pop('features')).rename(folder/'features.safetensors')
    known |= dict(digest=saved._digest(known, features.read_bytes()))
    write_json(folder/'classifier.json', **known)

def test_folders_of_before_load_and_become_new_ones(tmp_path):
    x, y = table()
    clf = features().fit(x, y)
    as_before(clf.save(tmp_path))
    again = FewShotClassifier.load(tmp_path)
    assert np.allclose(again.predict_proba(x), clf.predict_proba(x), atol=1e-6)
    again.save(tmp_path)
    assert not (tmp_path/'features.safetensors').exists()
    assert np.array_equal(FewShotClassifier.load(tmp_path).predict(x), clf.predict(x))

# ---- 4: what is read

def forged(folder, **changes):
    "Changes the JSON and the features of a folder, and gives it the digest of what it holds then"
    from fcam.classifiers import saved
    known = json.loads((folder/'classifier.json').read_text())
    found, settings, tensors = (changes.pop(name, {}) for name in ('found', 'settings', 'tensors'))
    known |= changes | dict(found=known['found'] | found, settings=known['settings'] | settings)
    if tensors: save_file({k: o.contiguous() for k, o in (load_file(folder/known['features']) | tensors).items()}, folder/known['features'])
    del known['digest']
    content = (folder/known['features']).read_bytes() if Path(str(known['features'])).name == known['features'] else b''
    text = json.dumps(known)
    (folder/'classifier.json').write_text(json.dumps(known | dict(digest=saved._digest(json.loads(text), content))) if 'NaN' not in text else text)

n = 24
forgeries = dict(
    cache=dict(settings=dict(cache='/tmp/spy')), setting=dict(settings=dict(unknown=1)), rule=dict(settings=dict(rule='no rule')),
    format=dict(format=4), of_02=dict(format=1), text=dict(format='3'), method=dict(found=dict(predict=1)), cold=dict(found=dict(temperature_=0.)), nan=dict(found=dict(temperature_=float('nan'))),
    word=dict(found=dict(temperature_='1')), none=dict(found=dict(temperature_=None)), estimate=dict(found=dict(estimate_=dict(like=['a', 'b', 'c']))),
    threshold=dict(found=dict(threshold_='high')), found_rule=dict(found=dict(rule_='no rule')), exponent=dict(found=dict(exponent_='x')),
    classes=dict(classes=['a', 'b']), order=dict(classes=['c', 'b', 'a']), cut=dict(classes=['alpha', 'beta', 'gamma']), dtype=dict(dtype='|O'), dtypes=dict(dtype='nothing'),
    pictures=dict(pictures=['x']), groups=dict(groups=['a']), seconds=dict(seconds='s'*n), encoder=dict(encoder=dict(name=5)), name=dict(encoder=[1]),
    path=dict(features='../features.safetensors'), number=dict(features=3),
    labels=dict(tensors=dict(labels=torch.arange(n)%4)), floats=dict(tensors=dict(labels=torch.zeros(n))), fewer=dict(tensors=dict(labels=torch.arange(3))),
    shape=dict(tensors=dict(local=torch.randn(n, 1, 5))), flat=dict(tensors=dict(local=torch.randn(n))), more=dict(tensors=dict(extra=torch.ones(1))),
    infinite=dict(tensors=dict(whole=torch.full((n, 6), torch.inf))), whole=dict(tensors=dict(whole=torch.randn(n, 9))))

@pytest.mark.parametrize('name', forgeries)
def test_what_save_does_not_write_is_refused(name, tmp_path):
    forged(features().fit(*table()).save(tmp_path), **forgeries[name])
    refused(lambda: FewShotClassifier.load(tmp_path), 'is damaged, or was changed')

@pytest.mark.parametrize('text', ['[]', '1', '{}', '', '{"found": 1}', '['*100_000])
def test_any_other_json_is_refused(text, tmp_path):
    features().fit(*table()).save(tmp_path)
    (tmp_path/'classifier.json').write_text(text)
    refused(lambda: FewShotClassifier.load(tmp_path), 'is damaged, or was changed')

@pytest.mark.parametrize('name', ['hf://somebody/model', 'hf-hub:somebody/model', 'timm:hf-hub:somebody/model'])
def test_nothing_is_fetched_unasked(name, tmp_path):
    small().fit(colours()).save(tmp_path)
    known = json.loads((tmp_path/'classifier.json').read_text())['encoder']
    forged(tmp_path, encoder=known | (dict(fcam=name) if name.startswith('hf:') else dict(name=name)))
    refused(lambda: FewShotClassifier.load(tmp_path), 'is not fetched unasked', f'encoder={name!r}')

def test_features_of_another_encoder_are_refused(tmp_path):
    clf = small().fit(colours())
    tensors = dict(local=clf.bank_.local[..., ::2], whole=clf.bank_.whole[:, ::2])
    forged(clf.save(tmp_path), tensors=tensors)
    refused(lambda: FewShotClassifier.load(tmp_path, encoder=clf.encoder, device='cpu'), 'is damaged')

def test_a_compiled_encoder_is_the_same(tmp_path):
    clf = small().fit(colours())
    clf.save(tmp_path)
    compiled = torch.compile(clf.encoder, backend='eager')
    again = FewShotClassifier.load(tmp_path, encoder=compiled, device='cpu')
    assert np.allclose(again.predict_proba(colours()['red']), clf.predict_proba(colours()['red']), atol=1e-5)
    other = nn.Conv2d(3, 12, 3)
    refused(lambda: FewShotClassifier.load(tmp_path, encoder=other, device='cpu'), 'weights')

# ---- 5: links in the folder of a run

@pytest.mark.parametrize('place', ['stages', 'stages/warm-up', 'stages/calibration/student'])
def test_links_in_a_run_are_not_followed(place, tmp_path):
    from fcam.training.checkpoint import lock_run
    mine, link = tmp_path/'mine', tmp_path/'run'/place
    for folder in mine, link.parent: folder.mkdir(parents=True)
    (mine/'checkpoint.pt').write_text('mine')
    link.symlink_to(mine)
    refused(lambda: lock_run(tmp_path/'run'), f'{link} is a link')
    assert not (tmp_path/'run'/'.lock').exists()
    (tmp_path/'short').symlink_to(tmp_path/'long')             # the run itself may lie elsewhere
    (tmp_path/'long').mkdir()
    lock_run(tmp_path/'short')[1].release()

# ---- 12: what is ended

def test_children_of_a_command_that_is_killed_end(tmp_path):
    code = """import os, sys, time
from pathlib import Path
from joblib import delayed, Parallel
from fcam.paper.reproduce import _measure
class Options(dict):
    "A measurement that takes minutes"
    def __getitem__(self, name):
        Path(sys.argv[1], str(os.getpid())).touch()
        time.sleep(300)
Parallel(2)(delayed(_measure)(Options(), seed, os.getpid()) for seed in range(2))"""
    process = subprocess.Popen([sys.executable, '-c', code.replace('sys.argv[1]', repr(str(tmp_path)))])
    while process.poll() is None and len(list(tmp_path.iterdir())) < 2: time.sleep(0.05)
    process.kill()
    process.wait()
    children, begin = [int(file.name) for file in tmp_path.iterdir()], time.time()
    def alive(number): return Path(f'/proc/{number}/stat').exists() and ' Z ' not in Path(f'/proc/{number}/stat').read_text()
    while any(map(alive, children)) and time.time() - begin < 20: time.sleep(0.1)
    assert len(children) == 2 and not any(map(alive, children))

# ---- 2 and 20: what lies in folders

@pytest.fixture
def folder(tmp_path):
    for name, pictures in colours().items():
        (tmp_path/'classes'/name).mkdir(parents=True)
        for i, one in enumerate(pictures): one.save(tmp_path/'classes'/name/f'{i}.png')
    return tmp_path/'classes'

def within(seconds, code, *words):
    done = subprocess.run([sys.executable, '-c', code, *map(str, words)], timeout=seconds + 40, capture_output=True, text=True, env=os.environ | dict(OMP_NUM_THREADS='1'))
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr

def test_pipes_are_not_waited_for(folder, tmp_path):
    os.mkfifo(folder/'red'/'pipe.png')
    os.mkfifo(tmp_path/'pipe.jpg')
    code = """import sys, warnings
from fcam.classify import FewShotClassifier
from fcam.images.pixels import load_image, measure_image
from fcam.images.folders import image_files
left = {}
print(len(image_files(sys.argv[1] + '/red', left)), *left)
for function in load_image, measure_image:
    try: function(sys.argv[2])
    except ValueError as error: print(error)
"""
    done = subprocess.run([sys.executable, '-c', code, str(folder), str(tmp_path/'pipe.jpg')], timeout=60, capture_output=True, text=True)
    first, *others = done.stdout.splitlines()
    assert first == '4 that are no files but pipes or devices', done.stdout + done.stderr
    assert len(others) == 2 and all('is a pipe, a socket or a device' in o for o in others)
    (tmp_path/'saved').mkdir()
    os.mkfifo(tmp_path/'saved'/'classifier.json')
    code = """import sys
from fcam.classify import FewShotClassifier
try: FewShotClassifier.load(sys.argv[1])
except ValueError as error: print(error)"""
    done = subprocess.run([sys.executable, '-c', code, str(tmp_path/'saved')], timeout=60, capture_output=True, text=True)
    assert 'is a pipe, a socket or a device' in done.stdout

def test_pipes_are_no_records(tmp_path):
    for name in 'result.json', 'config.json': os.mkfifo(tmp_path/name)
    code = """import sys
from pathlib import Path
from fcam.core.models import read_config
from fcam.training.presets import read_run
for function, path in (read_run, sys.argv[1] + '/result.json'), (read_config, Path(sys.argv[1])):
    try: function(path)
    except ValueError as error: print(error)
print(2)"""
    assert within(20, code, tmp_path) == '2'

def test_a_very_deep_tree_is_refused_at_once(folder):
    here, begin = os.getcwd(), time.time()
    try:
        os.chdir(folder/'red')
        for _ in range(1500):
            os.mkdir('d')
            os.chdir('d')
    finally: os.chdir(here)
    refused(lambda: class_files(folder), 'more than 100 deep')
    assert time.time() - begin < 10
    subprocess.run(['rm', '-rf', str(folder)], check=True)

def test_a_link_to_where_it_lies_is_followed_once(folder):
    (folder/'red'/'again').symlink_to(folder/'red')
    assert len(image_files(folder/'red')) == 4

def test_heic_that_holds_a_jpeg_is_read(folder):
    Image.new('RGB', (40, 40), 'red').save(folder/'red'/'phone.heic', 'JPEG')
    assert folder/'red'/'phone.heic' in image_files(folder/'red')
    (folder/'red'/'real.heic').write_bytes(b'\0\0\0\x18ftypheic' + bytes(40))
    image_files(folder/'red', left := {})
    assert [o.name for o in left['in HEIC: convert them, or install pillow-heif']] == ['real.heic']

# ---- 8, 9, 10, 18: groups, names, copies, labels

def test_groups_that_are_not_known():
    from pandas import DataFrame, NA, Series
    x, y = table(2)
    for missing in (float('nan'), None, NA, np.nan):
        clf = features().fit(x, y, groups=Series(['p', missing]*3, dtype=object))
        assert clf.groups_ == ['p', None]*3
    for wrong in 'shelf', dict(a=1), DataFrame(dict(a=[1]*6, b=[1]*6)), 5, {1, 2}:
        refused(lambda: features().fit(x, y, groups=wrong), 'give a list of names, one for each picture')
        refused(lambda: small().fit(colours(2), groups=wrong), 'give a list of names, one for each picture')
    refused(lambda: features().fit(x, y, groups=['p']), 'inconsistent numbers of samples')

@pytest.mark.parametrize('other', [normalize('NFD', 'café'), 'café ', 'café\xa0', 'CAFÉ'])
def test_one_name_in_two_spellings_is_told(other, tmp_path):
    blue, green, red = colours().values()
    given = {normalize('NFC', 'café'): blue, other: green, 'tea': red}
    assert 'count as two classes' in said(lambda: small().fit(given))
    for name, pictures in given.items():
        (tmp_path/name).mkdir()
        for i, one in enumerate(pictures): one.save(tmp_path/name/f'{i}.png')
    assert said(lambda: small().fit(tmp_path)).count('count as two classes') == 1
    clf = small().fit({normalize('NFC', 'café'): blue, 'tea': red})
    told = said(lambda: clf.score({other: blue, 'tea': red}))
    assert '4 of 8 pictures count as wrong, since their classes are not known' in told and 'of the other 4 100.0 % are right' in told and 'count as two classes' in told
    assert not said(lambda: clf.score({'tea': red}))

def test_a_picture_that_is_there_again_is_told():
    blue, green, red = colours().values()
    assert 'the same picture in several classes: picture 1 (blue), picture 9 (red)' in said(lambda: small().fit(dict(blue=blue, green=green, red=[blue[0], *red])))
    assert 'the same picture in one class, several times: picture 1 (blue), picture 2 (blue), picture 3 (blue)' in said(lambda: small().fit(dict(blue=[blue[0]]*3, red=red)))
    clf = small().fit(dict(blue=blue, red=red))
    assert not said(lambda: clf.partial_fit(dict(green=green)))
    assert 'in several classes' in said(lambda: clf.partial_fit([blue[1]], ['green']))
    assert not said(lambda: clf.partial_fit([Image.new('RGB', (40, 40), 'white')], ['green']))    # of before nothing again

def test_copies_are_told_after_loading(tmp_path):
    clf = small().fit(colours())
    again = FewShotClassifier.load(clf.save(tmp_path), encoder=clf.encoder, device='cpu')
    again.verbose = False
    assert 'in several classes' in said(lambda: again.partial_fit([colours()['red'][0]], ['blue']))

@pytest.mark.parametrize('label', [np.datetime64('NaT'), Path('a'), Decimal(1), date(2026, 1, 1), frozenset([1]), None, 'a\0', b'a', (1, 2)], ids=repr)
def test_labels_that_are_neither_text_nor_numbers(label):
    x, y = table(2)
    labels = ['a', 'a', 'b', 'b', label, label] if isinstance(label, str) else [label]*3 + [type(label)('b') if isinstance(label, Path) else label]*3
    refused(lambda: features().fit(x, labels))
    refused(lambda: small().fit([picture(i) for i in range(6)], labels))

def test_masks_are_not_ignored():
    x, y = table(2)
    refused(lambda: features().fit(np.ma.masked_less(x, 0), y), 'masked')
    refused(lambda: features().fit(x, np.ma.masked_equal(np.arange(6)//2, 1)), 'masked')
    refused(lambda: features().fit(x, y).predict(np.ma.masked_less(x, 0)), 'masked')
    assert features().fit(np.ma.array(x), y).score(x, y) == 1

@pytest.mark.parametrize('rule', ['auto', 'cosine', 'logistic_regression', 'gda', 'simpleshot'])
@pytest.mark.parametrize('scale', [1e200, 1e-200, 1e-20, 1e9])
def test_features_of_any_scale_score_alike(rule, scale, tmp_path):
    x, y = table()
    new = table(seed=1)[0]
    plain, clf = features(rule=rule).fit(x, y), features(rule=rule).fit(x*scale, y)
    if rule in ('auto', 'cosine'): assert np.allclose(clf.predict_proba(new*scale), plain.predict_proba(new), atol=1e-6)
    assert (clf.predict(new*scale) == plain.predict(new)).mean() > 0.95
    again = FewShotClassifier.load(clf.save(tmp_path))
    assert np.array_equal(again.predict_proba(new*scale), clf.predict_proba(new*scale))

# ---- 6 and 11: threads, modes, weights

def test_threads_with_a_module_that_trains():
    layers = small(plain=True).train()
    clf = FewShotClassifier(layers, size=32, cells=3, **quiet).fit(colours())
    before = {name: o.clone() for name, o in layers.state_dict().items()}
    asked = [picture(i) for i in range(40)]
    expected = [clf.predict_proba([one]) for one in asked]
    with ThreadPoolExecutor(8) as pool: found = list(pool.map(lambda i: clf.predict_proba([asked[i%40]]), range(400)))
    assert max(np.abs(one - expected[i%40]).max() for i, one in enumerate(found)) < 1e-6
    assert all(torch.equal(o, before[name]) for name, o in layers.state_dict().items())
    assert all(module.training for module in layers.modules())

def test_changed_weights_are_noticed(tmp_path):
    layers = small(plain=True).eval()
    clf = FewShotClassifier(layers, size=32, cells=3, **quiet).fit(colours())
    asked = colours()['red']
    assert not said(lambda: clf.predict(asked))
    again = FewShotClassifier.load(clf.save(tmp_path), encoder=layers, device='cpu')
    assert not said(lambda: again.predict(asked))
    layers[0].weight.data.mul_(-1)
    for one in clf, again: assert 'weights of the encoder have changed since fit' in said(lambda: one.predict(asked))
    assert 'have changed' in said(lambda: clf.partial_fit([picture(0)], ['new']))
    assert not said(lambda: clf.fit(colours()).predict(asked))

# ---- 13, 14

def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    from fcam.model import FCAM, load_fcam
    model = load_fcam('cifar_fs', device='cpu')
    model.save(tmp_path)
    next(model.parameters()).data[0] = torch.nan
    for folder in tmp_path, tmp_path/'model': refused(lambda: model.save(folder), 'not finite')
    assert not (tmp_path/'model').exists()
    load_fcam(tmp_path, device='cpu')

def test_scikit_learn_knows_all_methods():
    import sklearn
    from sklearn.model_selection import cross_validate, cross_val_score, GroupKFold
    x, y = table(10)
    clf = features()
    assert all(hasattr(clf, name) for name in ('set_fit_request', 'set_partial_fit_request', 'set_score_request', 'set_output', 'get_feature_names_out'))
    clf.set_output(transform='pandas').fit(x, y)
    found = clf.transform(x)
    assert list(found) == list(clf.get_feature_names_out()) and len(found) == len(x)
    one = small().set_output(transform='pandas').fit(colours())
    assert one.transform(colours()['red']).shape == (4, 12)
    groups = np.tile(np.arange(5), 6)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = features().set_fit_request(groups=True)
        assert cross_validate(routed, x, y, cv=GroupKFold(3), params=dict(groups=groups))['test_score'].mean() > 0.8
    with sklearn.config_context(transform_output='pandas'): assert hasattr(features().fit(x, y).transform(x), 'columns')
    asking = features()
    asking.suggest(x, 2)
    asking.set_params(encoder=small().encoder, size=32, cells=3, device='cpu').partial_fit(colours())
    assert asking.predict(colours()['red']).tolist() == ['red']*4
    pictures, labels = sum(colours(10).values(), []), np.repeat(['blue', 'green', 'red'], 10)
    assert np.isfinite(cross_val_score(small(none_of_these=0.1), pictures, labels, cv=3)).all()

# ---- 15: what is given

class Pairs(torch.utils.data.Dataset):
    def __init__(self, classes): self.items = [(one, name) for name, pictures in classes.items() for one in pictures]
    def __len__(self): return len(self.items)
    def __getitem__(self, i): return self.items[i]

def test_datasets_of_torch():
    clf = small().fit(Pairs(colours()))
    assert clf.predict(Pairs(colours())).tolist() == sum([[name]*4 for name in colours()], [])
    assert clf.score(Pairs(colours())) == 1
    assert clf.fit(Pairs(colours()), [label for _, label in Pairs(colours()).items]).score(Pairs(colours())) == 1
    loader = torch.utils.data.DataLoader(Pairs(colours()))
    for function in clf.predict, clf.fit, clf.score: refused(lambda: function(loader), 'give its dataset')

def test_what_is_no_picture_is_named():
    clf = small().fit(colours())
    for wrong in None, 5: refused(lambda: clf.predict(wrong), f'X is {wrong}')
    refused(lambda: clf.predict([None]), 'image')
    refused(lambda: clf.encoder_.embed([]), 'no picture')
    refused(lambda: clf.explain(colours()['red']), 'one picture')
    refused(lambda: clf.explain(colours()['red'][0], n_pictures=0), 'n_pictures is 0')
    query = clf.embed(colours()['red'][:1])
    refused(lambda: small().compare(query, [0]), 'call fit before')
    refused(lambda: small().fit(colours()['red'], [['a'], ['b', 'c'], ['a'], ['b']]), "the label ['a'] is neither text nor a number")

def test_settings_of_the_encoder_between_fit_and_partial_fit(tmp_path):
    clf = small().fit(colours())
    blue, asked = colours()['blue'], colours()['red']
    for given in dict(encoder=small().encoder), dict(encoder=None), dict(cells=2), dict(size=40), dict(how='crops'):
        before, expected = clf.get_params(), clf.predict_proba(asked)
        clf.set_params(**given)
        refused(lambda: clf.partial_fit(blue, ['blue']*4), 'set it back, or call fit')
        clf.set_params(**{name: before[name] for name in given})
        assert np.array_equal(clf.predict_proba(asked), expected)
    again = FewShotClassifier.load(clf.save(tmp_path), encoder=clf.encoder, device='cpu')
    for one in clf, again: one.set_params(verbose=False, batch_size=3, none_of_these=0.1).partial_fit([picture(i) for i in range(4)], ['noise']*4)
    assert clf.classes_.tolist() == again.classes_.tolist() == ['blue', 'green', 'noise', 'red']

def test_a_learner_takes_data_and_callbacks():
    from fcam.data import FewShotData
    from fcam.learner import fcam_learner
    for wrong in 5, None, [picture(0)], dict(a=[picture(0)]): refused(lambda: fcam_learner(wrong), 'give a FewShotData')
    data = FewShotData.glyphs(n_per_class=12)
    for wrong in 5, 'cb', [print], nn.ReLU: refused(lambda: fcam_learner(data, preset='tiny', n_query=3, cbs=wrong, device='cpu'), 'give a callback')
    learn = fcam_learner(data, preset='tiny', n_query=3, device='cpu')
    refused(lambda: learn.meta_train(cbs=5), 'give a callback')

class Odd(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.layer = how, nn.Conv2d(3, 8, 3, stride=4)
    def forward(self, x): return self.how(self.layer(x))

@pytest.mark.parametrize('how', [lambda o: o.mean((2, 3)).squeeze(), lambda o: o.mean((2, 3))[:1].expand(5, -1), lambda o: o[:, :, None], lambda o: o[:-1] if len(o) > 1 else o, lambda o: o.sum()], ids=['squeezed', 'five rows', 'five dimensions', 'a row fewer', 'a number'])
def test_encoders_that_do_not_give_a_row_a_picture(how): refused(lambda: FewShotClassifier(Odd(how), size=32, **quiet).fit(colours()), 'it gives')

def test_a_strip_is_refused():
    for image in Image.new('RGB', (60_000, 1)), Image.new('RGB', (1, 60_000)): refused(lambda: small().fit(colours()).predict([image]), 'strip')

# ---- 17

def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    from fcam.core.files import results_folder
    monkeypatch.chdir(tmp_path)
    (tmp_path/'runs').write_text('a file')
    with pytest.raises(OSError, match='give --out'):
        with results_folder(None, 'runs/predict'): pass

@pytest.mark.parametrize('damage', ['cut', 'empty', 'refused', 'loop', 'folder', 'pipe'])
def test_cached_features_that_cannot_be_read_are_computed_again(damage, tmp_path, monkeypatch):
    pictures, clf = colours(), small()
    expected = clf.fit(pictures).predict_proba(pictures['red'])
    clf.set_params(cache=tmp_path).fit(pictures)
    for file in tmp_path.rglob('*.features'):
        content = file.read_bytes()
        if damage == 'refused': continue
        file.unlink()
        if damage == 'cut': file.write_bytes(content[:-9])
        if damage == 'empty': file.write_bytes(b'')
        if damage == 'loop': file.symlink_to(file)
        if damage == 'folder': file.mkdir()
        if damage == 'pipe': os.mkfifo(file)
    def denied(path): raise PermissionError(13, 'Permission denied', str(path))
    if damage == 'refused': monkeypatch.setattr(Path, 'read_bytes', denied)
    again = small(cache=tmp_path)
    told = said(lambda: again.fit(pictures))
    assert np.array_equal(again.predict_proba(pictures['red']), expected)
    assert ('computed again' in told) == (damage in ('cut', 'empty', 'refused'))

def test_two_encoders_of_equal_weights_share_no_cache(tmp_path):
    torch.manual_seed(0)
    first = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.ReLU())
    second = nn.Sequential(first[0], nn.Tanh())
    for module in first, second: kept = FewShotClassifier(module, size=32, cells=3, cache=tmp_path, **quiet).fit(colours())
    plain = FewShotClassifier(second, size=32, cells=3, **quiet).fit(colours())
    assert np.allclose(kept.predict_proba([picture(1)]), plain.predict_proba([picture(1)]), atol=1e-5)

# ---- 19

@pytest.mark.parametrize('kind', [list, tuple, np.array])
def test_masses_as_numbers_have_the_precision_of_the_cost(kind):
    from fcam.sinkhorn import sinkhorn
    cost = torch.rand(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    masses = [0.1, 0.2, 0.7]
    found = []
    assert not said(lambda: found.append(sinkhorn(cost, kind(masses), kind(masses), 0.1, max_iter=100)))
    assert (found[0].sum(0) - torch.tensor(masses, dtype=torch.float64)).abs().max() < 1e-9
    for wrong in 1.5, '3', 0: refused(lambda: sinkhorn(cost, masses, masses, 0.1, max_iter=wrong), 'max_iter')

# ---- other trials

def test_features_that_are_tensors():
    x, y = table()
    tensor = torch.tensor(x, requires_grad=True)
    assert np.allclose(features().fit(tensor, y).predict_proba(tensor), features().fit(x, y).predict_proba(x))
    assert features().fit(tensor.bfloat16(), y).score(tensor.bfloat16(), y) == 1

def test_folders_that_hold_no_classifier(folder):
    for wrong in folder, folder/'nowhere', folder/'red'/'0.png', 'cifar_fs': refused(lambda: FewShotClassifier.load(wrong), 'holds no classifier.json: give the folder', errors=FileNotFoundError)

@pytest.mark.parametrize('wrong', [5, None, b'folder', ['folder']], ids=repr)
def test_what_is_no_path_is_named(wrong):
    clf = features().fit(*table())
    for function in clf.save, FewShotClassifier.load: refused(lambda: function(wrong), f'{wrong!r} is no path')

def test_whitening_is_a_switch():
    for wrong in 'no', 0: refused(lambda: features(whiten=wrong).fit(*table()), f'whiten is {wrong!r}')
    assert not features(whiten=False).fit(*table()).whiten_

def test_pictures_that_are_not_there():
    clf = small().fit(colours())
    for wrong in Image.new('RGB', (0, 0)), Image.new('RGB', (0, 5)): refused(lambda: clf.predict([wrong]), 'leave it out')
    for wrong in 'https://example.org/a.png', ['https://example.org/a.png']: refused(lambda: clf.predict(wrong), 'fetch it first', errors=FileNotFoundError)
    refused(lambda: clf.predict('nowhere.png'), "no image file 'nowhere.png'", errors=FileNotFoundError)

def test_features_of_another_classifier():
    clf, x = small().fit(colours()), features().fit(*table())
    refused(lambda: clf.predict(x.embed(table()[0])), 'features of another encoder')
    assert clf.predict(clf.embed(colours()['red'])).tolist() == ['red']*4

# ---- labels, pictures and datasets as people have them

@pytest.mark.parametrize('kind', ['object', 'string', 'category', 'StringDType'])
def test_labels_of_a_dataframe_can_be_saved(kind, tmp_path):
    import pandas as pd
    x, y = table()
    given = np.array(y, dtype=np.dtypes.StringDType()) if kind == 'StringDType' else pd.Series(y, dtype=kind)
    clf = features().fit(x, given)
    assert clf.classes_.dtype.kind == 'U' and said(lambda: features().fit(x, pd.Series([*y[:-1], 'B'], dtype='object'))).count('letter case') == 1
    clf.partial_fit(x[:1] - 3, pd.Series(['z'], dtype='object')).save(tmp_path)
    assert FewShotClassifier.load(tmp_path).classes_.tolist() == ['a', 'b', 'c', 'z']
    numbers = np.array([3, 5, 7], dtype=object)[np.unique(y, return_inverse=True)[1]]
    assert features().fit(x, numbers).classes_.dtype.kind == 'i'

def test_a_strip_among_pictures_is_named_and_left_out(tmp_path):
    for name, images in colours().items():
        (tmp_path/name).mkdir()
        for i, image in enumerate(images): image.save(tmp_path/name/f'{i}.png')
    Image.new('RGB', (900, 6)).save(tmp_path/'red'/'banner.png')
    clf, broken = small(), {}
    text = said(lambda: clf.fit(tmp_path))
    assert 'banner.png' in text and 'strip of 900 x 6 pixels' in text and len(clf.pictures_) == 12
    refused(lambda: clf.predict([tmp_path/'red'/'banner.png']), 'banner.png', 'strip')
    assert len(clf.embed(sorted((tmp_path/'red').iterdir()), broken).whole) == 4 and [*broken] == [4]

def test_a_fit_that_fails_leaves_the_classifier_as_it_was():
    clf, new = small().fit(colours()), colours(shift=3)['red']
    before = clf.predict_proba(new)
    for other in dict(size=64), dict(encoder=nn.Conv2d(3, 4, 3)):
        refused(lambda: clf.set_params(**other).fit(['nowhere.png'], ['a']), 'no image file', errors=FileNotFoundError)
        assert np.array_equal(clf.predict_proba(new), before)
    unsure = small(none_of_these=0.1)
    refused(lambda: unsure.fit(colours(n=1)), 'give two of a class')
    with pytest.raises(AttributeError): unsure.predict(new)    # scikit-learn's NotFittedError

def test_features_of_embed_stand_for_unlabelled_pictures():
    pictures = colours(n=5, shift=2)['red'] + colours(n=5, shift=2)['blue']
    clf = small().fit(colours(), unlabelled=pictures)
    bank = clf.embed(pictures)
    assert torch.equal(small().fit(colours(), unlabelled=bank).unlabelled_, clf.unlabelled_)
    assert [(o['position'], o['picture']) for o in clf.suggest(bank, 3)] == [(o['position'], None) for o in clf.suggest(pictures, 3)]
    refused(lambda: small().fit(bank, ['red']*5 + ['blue']*5), 'X is a Features and no list of pictures')

def test_a_dataset_that_was_split():
    from torch.utils.data import DataLoader, Dataset, random_split
    class Pictures(Dataset):
        items = [(image, name) for name, images in colours().items() for image in images]
        def __len__(self): return len(self.items)
        def __getitem__(self, i): return self.items[i]
    some, _ = random_split(Pictures(), [9, 3], torch.Generator().manual_seed(0))
    assert len(small().fit(some).pictures_) == 9
    refused(lambda: small().fit(DataLoader(Pictures())), 'gives batches')

def test_a_module_whose_first_layer_is_called_embed():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Conv2d(3, 8, 4, stride=4)
        def forward(self, x): return self.embed(x)
    assert FewShotClassifier(Network(), size=32, **quiet).fit(colours()).score(*zip(*((o, k) for k, v in colours().items() for o in v))) == 1

def test_a_loaded_classifier_has_the_settings_of_its_encoder(tmp_path):
    network, new = small(plain=True).eval(), colours(shift=3)['red']
    FewShotClassifier(named_encoder(network, size=32), **quiet).fit(colours()).save(tmp_path/'size')
    refused(lambda: FewShotClassifier.load(tmp_path/'size', encoder=named_encoder(network, size=64)), 'made with size 32', 'not 64')
    own = FewShotClassifier(named_encoder(network, size=32, mean=(.1, .2, .3), std=(1, 1, 1)), **quiet).fit(colours())
    loaded = FewShotClassifier.load(own.save(tmp_path/'own'), encoder=network)
    for again in loaded, loaded.fit(colours()): assert np.allclose(again.predict_proba(new), own.predict_proba(new), atol=1e-6)

def test_columns_of_a_table_have_names_after_load(tmp_path):
    import pandas as pd
    x, y = table()
    rows = pd.DataFrame(x, columns=[*'abcdef'])
    clf = FewShotClassifier.load(features().fit(rows, y, unlabelled=rows).save(tmp_path))
    assert not said(lambda: clf.predict(rows)) and not said(lambda: clf.suggest(rows, 2))
    with pytest.raises(ValueError, match='feature names'): clf.predict(rows[[*'fedcba']])
    first, *_ = clf.suggest(rows, 2)
    assert np.array_equal(first['picture'], x[first['position']])
    many = pd.concat([rows]*100, ignore_index=True)
    assert features().fit(rows, y, unlabelled=many).unlabelled_.shape == (2000, 6)

# ---- callbacks of fastai, and what is given again

def tiny_learner(seed=3, **settings):
    from fcam.data import FewShotData
    from fcam.learner import fcam_learner
    return fcam_learner(FewShotData.glyphs(n_per_class=12), preset='tiny', n_query=3, seed=seed, device='cpu', **settings)

def epochs_of(learn): return [(row['epoch'], row['valid_accuracy'], row['kept']) for row in learn.history]

def test_a_model_saved_by_a_callback_does_not_change_what_is_kept(tmp_path):
    from fastai.callback.all import SaveModelCallback
    settings = dict(warmup_epochs=3, calibration_epochs=0)
    plain = tiny_learner(**settings).pretrain()
    saving = tiny_learner(cbs=SaveModelCallback(monitor='valid_accuracy'), **settings)
    saving.path = tmp_path
    assert epochs_of(saving.pretrain()) == epochs_of(plain) and len(plain.history) == 3
    states = (one.stages['warm-up'].encoder.state_dict() for one in (plain, saving))
    assert all(torch.equal(a, b) for a, b in zip(*(state.values() for state in states)))

def test_the_epoch_at_which_a_callback_stops_counts():
    from fastai.callback.all import EarlyStoppingCallback
    stopping = EarlyStoppingCallback(monitor='train_loss', comp=np.less, patience=1, min_delta=50.)
    found = epochs_of(tiny_learner(cbs=stopping, warmup_epochs=4, calibration_epochs=0).pretrain())
    assert [epoch for epoch, *_ in found] == [1, 2] and sum(kept for *_, kept in found) < 2

def test_a_first_stage_begins_again_with_the_same_weights():
    learn = tiny_learner(warmup_epochs=1, calibration_epochs=0)
    first = [p.clone() for p in learn.model[0].parameters()]
    learn.pretrain()
    begun = []
    class Seen(Callback):
        def before_train(self): begun.append([p.clone() for p in self.model[0].parameters()])
    learn.add_cb(Seen()).own_cbs.append(learn.seen)
    learn.pretrain(warmup_epochs=2)
    assert all(map(torch.equal, begun[0], first))

def test_another_loss_calibrates_again_and_one_that_is_not_used_is_named(tmp_path, capsys):
    called = []
    def squared(student, teacher):
        called.append(1)
        return (student - teacher).square().mean()
    learn = tiny_learner().pretrain()
    learn.pretrain(soft_loss_func=squared)
    assert called
    kept = tiny_learner(folder=tmp_path/'run').pretrain()
    capsys.readouterr()
    kept.pretrain(soft_loss_func=squared).release()
    assert 'calibration is over in' in (said := capsys.readouterr().out) and 'soft_loss_func is not used' in said

def test_gradient_accumulation_is_that_of_the_tasks():
    from fastai.callback.all import GradientAccumulation
    refused(lambda: tiny_learner(cbs=GradientAccumulation(60)), 'set n_tasks_per_step')
    assert tiny_learner(cbs=GradientAccumulation(60), module_epochs=0, joint_epochs=0)

def of_somebody_else(*cbs, dtype=torch.float32):
    from fastai.callback import progress, schedule             # which add no_bar and lr_find
    from fastai.data.core import DataLoaders
    from fastai.learner import Learner
    from fastai.optimizer import SGD
    torch.manual_seed(0)
    items = [(torch.randn(3, 8, 8), i%3) for i in range(32)]
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)).to(dtype)
    return Learner(DataLoaders.from_dsets(items, items, bs=16, device='cpu'), model, loss_func=nn.CrossEntropyLoss(), opt_func=SGD, cbs=cbs)

def test_a_teacher_begins_with_the_weights_of_the_training():
    from fcam.calibration import MomentumTeacher
    learn = of_somebody_else(MomentumTeacher(0.999))
    with learn.no_bar(), learn.no_logging():
        learn.validate()                                       # a teacher is there from now on
        with torch.no_grad():
            for p in learn.model.parameters(): p.mul_(50)
        learn.fit(1, 1e-4)
    pairs = zip(learn.model.parameters(), learn.momentum_teacher.teacher.parameters())
    assert max((a - b).abs().max().item() for a, b in pairs) < 0.1 and learn.momentum_teacher.n_updates == 2
    with learn.no_bar(), learn.no_logging(): learn.fit(1, 1e-4)
    assert learn.momentum_teacher.n_updates == 4
    refused(lambda: of_somebody_else(MomentumTeacher(0.9), dtype=torch.bfloat16).momentum_teacher.reset(), 'float32')
    for wrong in 1., 2., -0.1: refused(lambda: MomentumTeacher(wrong), 'momentum is')

def test_calibration_in_a_fit_that_begins_later_and_with_another_momentum():
    from fcam.calibration import FeatureCalibration
    from fcam.patches import RandomPatches
    patches, learn = RandomPatches(n_patches=4, size=8), of_somebody_else()
    with learn.no_bar(), learn.no_logging():
        learn.fit(6, 1e-3, cbs=FeatureCalibration(patches, warmup_epochs=3), start_epoch=4)
        assert learn.momentum_teacher.n_updates == 4
        learn.fit(1, 1e-3, cbs=FeatureCalibration(patches, momentum=0.5))
    assert learn.momentum_teacher.momentum == 0.5
    refused(lambda: FeatureCalibration(patches, soft_weight=-1), 'soft_weight is -1')
    trying = of_somebody_else(FeatureCalibration(patches, warmup_epochs=3))
    with trying.no_bar(), trying.no_logging(): trying.lr_find(num_it=10, show_plot=False)
    assert trying.feature_calibration.epochs_done == 0

def test_classes_of_one_name_in_two_alphabets(tmp_path):
    from fcam.images.folders import folder_layout
    names = [f'{alphabet}/{i}' for alphabet in ('Greek', 'Latin') for i in range(3)]
    for name in names:
        (tmp_path/name).mkdir(parents=True)
        picture(0).save(tmp_path/name/'a.png')
    splits = dict(train=names[::3], valid=names[1::3], test=names[2::3])
    assert {k: [*files] for k, files in folder_layout(tmp_path, splits).items()} == splits

def test_marginals_in_single_precision_of_a_cost_in_double():
    from fcam.sinkhorn import sinkhorn
    cost, r, c = torch.rand(5, 9, 9).double(), torch.rand(5, 9).softmax(-1), torch.rand(5, 9).softmax(-1)
    for given in (r, c), (r.double(), c.double()):
        assert not said(lambda: sinkhorn(cost, *given, 0.1))
        assert torch.allclose(sinkhorn(cost, *given, 0.1).sum(-1), r.double(), atol=1e-6)

# ---- a trial of the commands, of the page and of scikit-learn's tools

def test_the_candidates_of_fit_stay(tmp_path):
    "A setting that was changed after `fit` changes neither the classifier nor its copies"
    x, y = table()
    clf = features(rule='simpleshot').fit(x, y)
    before = clf.predict_proba(x)
    clf.set_params(candidates=1)
    again = FewShotClassifier.load(clf.save(tmp_path/'saved'))
    for one in clf, pickle.loads(pickle.dumps(clf)), again: assert np.array_equal(one.predict_proba(x), before)
    assert again.candidates == 1 and (again.fit(x, y).predict_proba(x) != before).any()

def test_what_load_would_refuse_is_not_saved(tmp_path):
    clf = features().fit(*table()).set_params(rule='protonet')
    refused(lambda: clf.save(tmp_path/'saved'), "rule is 'protonet'")
    assert not (tmp_path/'saved').exists()

def test_one_class_is_not_yet_a_classifier(tmp_path):
    "What is asked for before a second class names the way; what was embedded is kept"
    x, y = table()
    for ask in (lambda o: o.predict(x), lambda o: o.save(tmp_path/'saved'), lambda o: o.review(), lambda o: o.report(), lambda o: o.score(x, y)):
        refused(lambda: ask(features()), 'nothing is fitted yet', errors=NotFittedError)
        refused(lambda: ask(features().partial_fit(x[:4], y[:4])), "there is one class, 'a': add another by partial_fit", errors=NotFittedError)
    clf = features().partial_fit(x[:8], y[:8]).partial_fit(x[8:], y[8:])
    assert np.array_equal(clf.predict_proba(x), features().fit(x, y).predict_proba(x))

def test_switches_of_numpy_in_a_grid(tmp_path):
    x, y = table()
    found = GridSearchCV(features(), dict(whiten=np.array([True, False])), cv=2, error_score='raise').fit(x, y)
    clf = features(whiten=np.True_, seed=np.int64(1)).fit(x, y)
    assert found.best_score_ > 0.5 and np.array_equal(FewShotClassifier.load(clf.save(tmp_path/'saved')).predict_proba(x), clf.predict_proba(x))

def test_a_batch_size_that_is_none():
    clf = small().fit(colours())
    for wrong in 0, -1: refused(lambda: clf.set_params(batch_size=wrong).predict(colours()['red']), f'batch_size is {wrong}')

def test_the_reason_for_a_large_picture_is_whole(tmp_path):
    for name, pictures in colours().items():
        (tmp_path/name).mkdir()
        for i, one in enumerate(pictures): one.save(tmp_path/name/f'{i}.png')
    Image.new('1', (20000, 10000)).save(tmp_path/'red'/'large.png')
    (tmp_path/'red'/'cut.png').write_bytes(b'no picture')
    text = said(lambda: small().fit(tmp_path))
    assert '(200000000 pixels) exceeds limit' in text and 'known format (cut.png)' in text, text

def visit(**changes):
    from fcam.app.visit import Visit
    one = Visit()
    for name, value in changes.items(): setattr(one, name, value)
    return one

def files_of(folder, names, shift=0):
    for name, pictures in zip(names, colours(shift=shift).values()):
        (folder/name).mkdir(parents=True)
        for i, picture in enumerate(pictures): picture.save(folder/name/f'{i}_{shift}.png')
    return {name: image_files(folder/name) for name in names}

def test_corrections_to_a_class_called_none_of_these(tmp_path):
    "Where that answer is never given, a class may have its name"
    names = 'none of these', 'moss', 'brick'
    one = visit(none_of_these=0)
    one.fill(files_of(tmp_path/'a', names), sum(files_of(tmp_path/'b', names, 3).values(), []))
    one.answer()
    picture, n = one.new[0], len(one.new)
    assert one.correct(picture, 'none of these').endswith('5 pictures') and len(one.new) == n - 1 and picture in one.named()['none of these']

def test_lines_of_the_page_learn_where_the_rule_does(tmp_path):
    names = 'sea', 'moss', 'brick'
    for rule, there in (('cosine', False), ('auto', True)):
        one = visit(rule=rule, learn=True)
        one.fill(files_of(tmp_path/rule/'a', names), sum(files_of(tmp_path/rule/'b', names, 3).values(), []))
        one.answer()
        assert (one.clf.unlabelled_ is not None) == ('unlabelled' in one.lines()) == there

@pytest.mark.skipif(find_spec('gradio') is None, reason='the page needs gradio')
def test_a_port_that_is_taken(tmp_path):
    import socket
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run([sys.executable, '-c', 'from fcam.app.command import app_command; app_command()', '--no_browser', '--port', str(port)],
                              capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode and f'port {port} cannot be used, it may be taken: give another' in done.stderr and 'GRADIO' not in done.stderr, done.stderr

def test_figures_of_an_earlier_run_are_no_new_pictures(tmp_path):
    "Results that lie beside the pictures are left out and named, and a table alone is none"
    for name in '1.png', 'runs/predict/001-1.png', 'own/2.png':
        (tmp_path/name).parent.mkdir(parents=True, exist_ok=True)
        picture(0).save(tmp_path/name)
    for name in 'runs/predict/predictions.csv', 'runs/predict/result.json', 'own/predictions.csv': (tmp_path/name).write_text('{}')
    found = image_files(tmp_path, left_out := {})
    assert [o.name for o in found] == ['1.png', '2.png']
    assert [o.name for o in left_out['that are results of fcam_predict']] == ['001-1.png', 'predictions.csv', 'result.json']

# ---- a researcher's trial: data and splits, results, extensions

def class_pictures(folder, names, n=6):
    for k, name in enumerate(names):
        (folder/name).mkdir(parents=True)
        for i in range(n): picture(100*k + i).save(folder/name/f'{i}.png')

def train(**options):
    from fcam.commands.commands import fcam_train
    return fcam_train(preset='tiny', quiet=True, **{'set': ['n_valid=5'], **options})

def test_a_class_folder_that_is_gone_changes_no_split(tmp_path, monkeypatch):
    "The run's own split holds: nothing is measured on, or trained with, classes that were divided anew"
    from fcam.commands.commands import fcam_eval
    monkeypatch.chdir(tmp_path)
    names = [f'c{i}' for i in range(9)]
    class_pictures(tmp_path/'own', names)
    (tmp_path/'split.json').write_text(json.dumps(dict(train=names[:5], valid=names[5:7], test=names[7:])))
    train(data='own', splits='split.json', out='run')
    os.rename('own/c8', 'own/other')
    for call in (lambda: fcam_eval('run', n_episodes=3), lambda: fcam_train_again('run')):
        refused(call, '1 classes of the split are not among', "'c8'")
    os.rename('own/other', 'own/c8')
    fcam_eval('run', n_episodes=3, out='found')
    assert json.loads(Path('found/result.json').read_text())['data']['classes']['test'] == names[7:]

def fcam_train_again(run):
    from fcam.commands.commands import fcam_train
    return fcam_train(config=f'{run}/result.json', out='again', quiet=True)

def test_results_become_no_class(tmp_path, monkeypatch):
    "Neither fcam_eval within the folder of its data, which it does not name, nor fcam_reproduce"
    from fcam.commands.commands import fcam_eval
    from fcam.paper.reproduce import fcam_reproduce
    monkeypatch.chdir(tmp_path)
    class_pictures(tmp_path/'own', [f'c{i}' for i in range(9)])
    train(data='own', out='run')
    before = sorted(os.listdir('own'))
    monkeypatch.chdir(tmp_path/'own')
    refused(lambda: fcam_eval('../run', n_episodes=3), 'among the images', '--out')
    for out in None, '../own/rep': refused(lambda: fcam_reproduce('divergence', data='.', size='tiny', out=out), 'among the images', '--out')
    assert sorted(os.listdir('.')) == before

@pytest.mark.parametrize('text, words', [
    ('5', 'is no object'), ('null', 'is no object'), ('['*100_000, 'is not JSON'),
    ('{"train": ["a"], "valid": null, "test": ["b"]}', "no list of class names for 'valid'"),
    ('{"train": ["a"], "valid": "b", "test": ["c"]}', "no list of class names for 'valid'"),
    ('{"train": ["a"], "valid": {"b": ["0.png"]}, "test": ["c"]}', "no list of class names for 'valid'"),
    *((json.dumps(dict(train=['a'], valid=['b', name], test=['c'])), repr(name)) for name in ('', '.', 'c/', '/c', 'x/../c', 'x//c', '..'))])
def test_splits_that_are_none(tmp_path, text, words):
    from fcam.images.folders import read_split
    (tmp_path/'split.json').write_text(text)
    refused(lambda: read_split(tmp_path/'split.json'), 'split.json', words)

def test_soft_losses_of_ones_own():
    "One in another precision is added in that of the loss, and its mean is exact; what is no loss is named"
    learn = tiny_learner(precision='bfloat16', pretrain_iters=300, bs=4)
    learn.pretrain(soft_loss_func=lambda student, teacher: (student - student).sum() + 0.2)
    assert learn.history[-1]['soft_loss'] == pytest.approx(0.2, abs=1e-3)
    for found in (lambda student: student.double().pow(2).mean(), lambda student: student.pow(2).mean()[None]):
        learn = tiny_learner(precision='float32')
        learn.pretrain(soft_loss_func=lambda student, teacher: found(student))
        assert learn.history[-1]['soft_loss'] > 0
    for wrong in (lambda student: student, lambda student: 1., lambda student: None, lambda student: (student.mean(),)):
        learn = tiny_learner(precision='float32')
        with pytest.raises(ValueError, match='soft_loss_func gives .* one element'): learn.pretrain(soft_loss_func=lambda student, teacher: wrong(student))

def test_scores_of_another_shape():
    "A metric or a rule that forgets a dimension would be as good as chance, without a word"
    from fcam.classifiers.rules import OfMetric, Rule
    class One(nn.Module):
        def forward(self, query, proto): return query.mean((-1, -2))[..., None]
    class Table(Rule):
        def scores(self, support, query): return query.mean((-1, -2)).numpy()
    sets = torch.randn(2, 3, 1, 4, 5), torch.randn(2, 7, 4, 5)
    for rule in OfMetric(One()), Table(): refused(lambda: rule(*sets), type(rule).__name__, '(tasks, n_query, n_way), here (2, 7, 3)')

def test_names_that_are_taken():
    from fcam.classifiers.rules import Rule, register
    from fcam.metric import AdaptiveMetric
    from fcam.model import saved_kinds
    from fcam.training.stages import register_metric
    for name in 'metric', 'whole_and_parts', 'structured_fc', None: refused(lambda: register(name), repr(name))
    refused(lambda: register('other')(nn.Linear), 'no class derived from Rule')
    assert 'other' not in Rule.by_name
    mine = type('AdaptiveMetric', (nn.Module,), dict(settings=lambda self: {}))
    refused(lambda: register_metric(mine), 'another name')
    refused(lambda: register_metric(type('Without', (nn.Module,), {})), 'settings()')
    refused(lambda: register_metric(AdaptiveMetric(8)), 'settings()')
    assert saved_kinds['metric']['AdaptiveMetric'] is AdaptiveMetric and 'Without' not in saved_kinds['metric']

def test_experiments_that_cannot_be_run():
    "Before anything is trained"
    from fcam.paper.experiments import Claim, Experiment, Row
    refused(lambda: Row('a', stage='warmup'), 'warm-up')
    refused(lambda: Row('a', tested_on='mars'), 'other')
    refused(lambda: Experiment('mine', 'c', 'p', (Row('a'), Row('a', rule='cosine')), ()), 'share a name')
    refused(lambda: Experiment('mine', 'c', 'p', (Row('a'), Row('b')), (Claim('a', 'z'),)), "'z'")

def test_a_record_names_the_source_that_measured(tmp_path):
    "Numbers that were there keep the digest of the code that computed them"
    from fcam.paper.reproduce import fcam_reproduce
    options = dict(size='tiny', seeds=1, rows=['1'], out=str(tmp_path), quiet=True)
    fcam_reproduce('tsne', **options)
    record, (file,) = tmp_path/'tsne-glyphs-tiny.json', (tmp_path/'measured').iterdir()
    measured = json.loads(file.read_text())
    assert json.loads(record.read_text())['source'] == measured['source']
    write_json(file, **measured | dict(source='0123456789abcdef'))
    fcam_reproduce('tsne', **options)
    assert json.loads(record.read_text())['source'] == '0123456789abcdef'
