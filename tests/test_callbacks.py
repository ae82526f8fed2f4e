"The order of the callbacks: the table in `nbs/training/stages.ipynb` and the classes say the same"
import importlib, inspect, re

import pytest
from fastai.callback.all import GradientAccumulation, MixedPrecision, ParamScheduler, ProgressCallback
from fastai.callback.core import Callback, TrainEvalCallback
from fastai.learner import Recorder

from project import cells, importable, nbs

of_fastai = {c.__name__: c for c in (TrainEvalCallback, GradientAccumulation, MixedPrecision, Recorder, ProgressCallback, ParamScheduler)}

def table():
    "`{callback: (order, names of the callbacks that it comes after, whether it is fastai's)}`, as the notebook lists them"
    row = re.compile(r"^\| *(-?\d+) *\| *(fastai's )?`(\w+)` *\|([^|]*)\|[^|]+\|$", re.M)
    texts = (cell.source for cell in cells(nbs/'training'/'stages.ipynb') if cell.kind == 'markdown')
    found = [match for text in texts for match in row.findall(text)]
    assert len({name for _, _, name, _ in found}) == len(found) > 0
    return {name: (int(order), re.findall(r'`(\w+)`', after), bool(foreign)) for order, foreign, name, after in found}

def callbacks():
    "`{name: class}` of all callbacks that the package defines"
    found = (inspect.getmembers(importlib.import_module(f'fcam.{module}'), inspect.isclass) for module in importable())
    return {name: c for members in found for name, c in members if issubclass(c, Callback) and c.__module__.startswith('fcam.')}

def test_table_lists_every_callback_with_its_order():
    listed = {name: order for name, (order, _, foreign) in table().items() if not foreign}
    assert listed == {name: c.order for name, c in callbacks().items()}

def test_orders_of_fastai():
    listed = {name: order for name, (order, _, foreign) in table().items() if foreign}
    assert listed == {name: c.order for name, c in of_fastai.items()}

def test_callbacks_come_after_those_that_they_need():
    listed = table()
    orders = [order for order, _, _ in listed.values()]
    assert orders == sorted(orders)
    for name, (order, after, _) in listed.items():
        for other in after: assert listed[other][0] < order, f'{name} needs what {other} does'

@pytest.mark.parametrize('first, second', [('FeatureCalibration', 'GradientAccumulation'),
    ('FeatureCalibration', 'HalfPrecision'), ('FeatureCalibration', 'EpisodeValidation'), ('EpisodeValidation', 'Recorder'), ('Recorder', 'KeepBest'),
    ('KeepBest', 'StageHistory'), ('StageHistory', 'SaveState'), ('KeepEpochs', 'SaveState'), ('SaveState', 'StageProgress')])
def test_pairs_that_depend_on_each_other(first, second):
    "Those that the table may not lose; by the classes, not by the table"
    orders = {name: c.order for name, c in {**of_fastai, **callbacks()}.items()}
    assert orders[first] < orders[second] and first in table()[second][1]
