"The Python of the README, word for word, as a script; only the size of the run is another"
import os, subprocess, sys

from project import root
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
    blocks = python_block.findall((root/'README.md').read_text(encoding='utf-8'))
    block, = [block for block in blocks if 'fcam_learner' in block]
    assert len(block.strip().split('\n')) == 10
    (tmp_path/'ten_lines.py').write_text(smaller + block + promised, encoding='utf-8')
    done = subprocess.run([sys.executable, 'ten_lines.py'], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, 'MPLBACKEND': 'Agg'})
    assert done.returncode == 0, done.stderr
    assert sorted(f.name for f in (tmp_path/'models'/'glyphs').iterdir()) == ['config.json', 'model.safetensors']
