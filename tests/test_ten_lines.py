"The Python of the README, word for word, as a script; only the size of the run is another"
import os, subprocess, sys

from project import root
from test_docs import python_block

smaller = "from fcam.training.presets import presets\npresets['glyphs'] = presets['tiny']\n"

def test_ten_lines_run(tmp_path):
    block = python_block.search((root/'README.md').read_text(encoding='utf-8'))[1]
    (tmp_path/'ten_lines.py').write_text(smaller + block, encoding='utf-8')
    done = subprocess.run([sys.executable, 'ten_lines.py'], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, 'MPLBACKEND': 'Agg'})
    assert done.returncode == 0, done.stderr
    assert sorted(f.name for f in (tmp_path/'models'/'glyphs').iterdir()) == ['config.json', 'model.safetensors']
