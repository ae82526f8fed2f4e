"The Python of the README and of the learner, word for word, as scripts; only the size of the run is another"
import os, subprocess, sys

from project import cells, nbs, root
from test_docs import python_block

smaller = "from fcam.training.presets import presets\npresets['glyphs'] = presets['tiny']\n"
promised = """\
from fcam.learner import load_fcam
learn.evaluate(n_shot=1)
model = load_fcam('models/glyphs')
support, query = data.test.sample(n_way=3, n_shot=1, n_query=1, seed=0)
clf = model.classifier(support)
img = next(iter(query.values()))[0]
clf.predict(img)
clf.explain(img)
"""

def test_ten_lines_run(tmp_path):
    "They are ten, and what has been promised since the first version goes on from them"
    text = '\n'.join(c.source for c in cells(nbs/'11_learner.ipynb') if c.kind == 'markdown')
    block, = [block for block in python_block.findall(text) if 'fcam_learner' in block]
    assert len(block.strip().split('\n')) == 10
    (tmp_path/'ten_lines.py').write_text(smaller + block + promised, encoding='utf-8')
    done = subprocess.run([sys.executable, 'ten_lines.py'], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, 'MPLBACKEND': 'Agg'})
    assert done.returncode == 0, done.stderr
    assert sorted(f.name for f in (tmp_path/'models'/'glyphs').iterdir()) == ['config.json', 'model.safetensors']

def test_first_block_prints(tmp_path):
    "A name of a file and a label for each new picture"
    from fcam.data import FewShotData
    letters = FewShotData.glyphs(n_per_class=12).test.sample(n_way=2, n_shot=3, n_query=2, seed=0)
    for name, groups in zip(('pictures', 'new'), letters):
        for label, images in groups.items():
            folder = tmp_path/name/label if name == 'pictures' else tmp_path/name
            folder.mkdir(parents=True, exist_ok=True)
            for i, image in enumerate(images): image.resize((80, 80)).save(folder/f'{label} {i}.png')
    block = python_block.findall((root/'README.md').read_text(encoding='utf-8'))[0]
    done = subprocess.run([sys.executable, '-c', block], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().split('\n')[-4:]
    assert [line.rpartition(' ')[0] for line in lines] == sorted(f.name for f in (tmp_path/'new').iterdir())
    assert {line.rpartition(' ')[2] for line in lines} <= set(letters[0])
