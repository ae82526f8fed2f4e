"""Four trainings on CIFAR-FS at the published width, and a student of all four, on a GPU

    python nbs/measured/published_width_gpu.py RUNS 0           # one training; then, or beside it, 1, 2 and 3
    python nbs/measured/published_width_gpu.py RUNS student     # once the four are over
    python nbs/measured/published_width_gpu.py RUNS report      # what was found

In RUNS lie the trainings (`lab`, `student`), the accuracy of each task, and the images, as for
`published_width.py`. Whatever ended a command, it goes on where it was. The report writes the records of the
experiments, and `published_width_gpu.json` with the right answers of each task."""
import json, sys
from pathlib import Path

import torch
from fcam.core.files import write_json
from fcam.paper.claims import experiments
from fcam.paper.experiments import Row, training_of
from fcam.paper.laboratory import Laboratory, read_training
from fcam.paper.report import Report
from fcam.training.presets import choose_preset
from published_width import benchmark, Distilled, metrics, network_of, teacher

settings = dict(n_patches=9, scale=(0.2, 1.), bs=128, color_jitter=0.4, warmup_epochs=50, warmup_lr=0.1, warmup_drops=(),
                calibration_epochs=15, calibration_lr=0.01, soft_weight=0.5, momentum=0.999,
                n_iters=50, module_epochs=3, joint_epochs=4, joint_lr=1e-3, eps=0.1, sharpness=1., norm_power=0., weights_lr=0.,
                valid_patches=2, n_views=1, n_test=(2000, 600))
of_student = dict(width=32, warmup_epochs=80)                  # and all others as above
measured = dict(hard_labels=('warm-up', 'L_CE alone, averaged', 'soft labels, teacher'),
                ablation=('both', 'neither', 'neither, averaged'))
plain = dict(soft_target='none')
student_rows = (Row('warm-up', 'warm-up', 'cosine'), Row('averaged', teacher, 'cosine', settings=plain),
                Row('weights (4, 3), one eps', settings=plain | metrics['weights (4, 3), one eps'], test=dict(n_episodes=5000)))

class Ensemble(torch.nn.Module):
    "The mean of the logits of several networks"
    def __init__(self, networks):
        super().__init__()
        self.networks = torch.nn.ModuleList(networks)
    def forward(self, x): return torch.stack([one(x) for one in self.networks]).mean(0)

def laboratory(runs, folder='lab', cbs=(), **changes):
    "Where the rows are trained, with mean prototypes for five shots"
    data = benchmark(runs, 'cifar_fs')
    preset = choose_preset(data, 'cifar_fs', **settings | changes)
    return Laboratory(runs/folder, data, preset, structured=False, cbs=cbs)

def distilled(lab, runs, n_seeds):
    "The laboratory of a student that learns from the averaged networks of all trainings"
    row = Row('plain', teacher, settings=plain)
    networks = [network_of(lab, training_of(row, lab.preset, seed)) for seed in range(n_seeds)]
    return laboratory(runs, 'student', [Distilled(Ensemble(networks))], **of_student)

def answers(lab, row, seed):
    "How many of its 75 queries each task had right, and what is known of the trainings"
    right = {k: ','.join(f'{0.75*one:.0f}' for one in v.tolist()) for k, v in lab.measured(row, seed).items()}
    parts, training = [], training_of(row, lab.preset, seed)
    while training:
        known = read_training(lab.training_folder(training))
        kept = {o['stage']: o['epoch'] for o in known['history'] if o['kept']}
        parts, training = [dict(part=known['stage'], seconds=known['seconds'], kept=kept), *parts], training.start
    return dict(seed=seed, right=right, trainings=parts)

unlike_the_paper = ('Of the paper these trainings have the width: 50 and 15 epochs of pretraining where it has 120 and 240, '
    'lambda 0.5 where it has 0.1, 9 patches where it has 25, 1,400 tasks of meta-training where it has 40,000, and a colour jitter.')

def report(lab, student, out, n_seeds):
    "The records of both experiments, and the answers of all rows"
    rows = {}
    for name, names in measured.items():
        note = f'{experiments[name].note} {unlike_the_paper}'.strip()
        found = Report(lab, experiments[name], n_seeds=n_seeds, rows=names, size='full', note=note,
                       command_line='python nbs/measured/published_width_gpu.py RUNS report').run()
        for row in found.rows: rows[row.name] = [answers(lab, row, seed) for seed in found.seeds]
    rows |= {f'student, {row.name}': [answers(student, row, 0)] for row in student_rows}
    about = json.loads(found.path.with_suffix('.json').read_text())
    write_json(out/'published_width_gpu.json', settings=lab.preset.settings(), student=student.preset.settings(),
               **{k: about[k] for k in ('machine', 'precision', 'date')}, rows=rows)

def main(runs, what, n_seeds=4):
    lab = laboratory(runs)
    if what in ('student', 'report'):
        student = distilled(lab, runs, n_seeds)
        for row in student_rows: student.measured(row, 0)
        if what == 'report': report(lab, student, runs, n_seeds)
        return
    for name, names in measured.items():
        for row in names: lab.measured(experiments[name].row(row), int(what))

if __name__ == '__main__': main(Path(sys.argv[1]).expanduser().resolve(), sys.argv[2])
