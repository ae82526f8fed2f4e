"The GPU kernel without a GPU: Triton's interpreter against the solver in PyTorch, and the machine code that it compiles to"
import importlib.metadata, importlib.util, os, re, shutil, subprocess, sys
from pathlib import Path

import pytest

spec = importlib.util.find_spec('triton')
version = tuple(int(x) for x in importlib.metadata.version('triton').split('.')[:2]) if spec else None
reason = 'needs Triton 3.3 or newer; its interpreter and compiler interface are another before'
pytestmark = pytest.mark.skipif(version is None or version < (3, 3), reason=reason)

# ---- what runs in a process of its own, where TRITON_INTERPRET is set before Triton is imported

settings = dict(tol=1e-5, max_iter=1000)

def problems(n_problems, n, m, empty=False):
    "Random costs of cosines, softmax marginals, an eps a problem; `empty`: an element without mass a side"
    import torch
    from torch.nn.functional import normalize
    def patches(k): return normalize(torch.randn(n_problems, k, 16)+1.5*torch.randn(n_problems, 1, 16), dim=-1)
    u, v, r, c = patches(n), patches(m), torch.randn(n_problems, n), torch.randn(n_problems, m)
    if empty: r[:, n//2], c[:, m//3] = -torch.inf, -torch.inf
    eps = (0.1*(0.7*torch.randn(n_problems)).exp()).clamp(0.01, 2)
    return 1-u@v.mT, r.softmax(-1), c.softmax(-1), eps

def reference(cost, r, c, eps):
    "Plan, score and the score's gradients in double precision"
    from fcam.transport.solver import plan_gradients, solve
    cost, r, c, eps = (x.double() for x in (cost, r, c, eps))
    r, c = (x/x.sum(-1, keepdim=True) for x in (r, c))
    plan = solve(cost, r, c, eps, tol=1e-11, max_iter=5000)[0]
    d_cost, *rest = plan_gradients(plan, eps, T=-cost)
    return plan, ((1-cost)*plan).sum((-2, -1)), (d_cost-plan, *rest)

def close(mine, theirs, bound):
    "Assert that the norm of the difference is small against the norm, or both next to nothing"
    for x, y in zip(mine, theirs):
        allowed = max(bound*y.norm(), 1e-4 if y.norm() < 1e-6 else 0)
        assert (x-y).norm() <= allowed, f'{float((x-y).norm()):.1e} of {float(y.norm()):.1e}'

def check_values():
    import torch
    from fcam.transport.kernel import kernel_applies, kernel_score, kernel_solve, split_gradients
    for n, m, empty in ((25, 25, False), (9, 9, True), (17, 6, False), (5, 33, True), (1, 7, False), (7, 1, False)):
        given = problems(2, n, m, empty)
        for wanted in ('plan', 'score', 'gradients'):
            assert kernel_applies(given[0], wanted) and not kernel_applies(given[0].double(), wanted)
        plan, score, gradients = reference(*given)
        mine, error, buffer = kernel_score(*given, **settings, with_gradient=True)
        assert (error <= 1e-5).all() and (mine-score).abs().max() < 2e-6, (n, m, float((mine-score).abs().max()))
        close(split_gradients(*buffer, n, m), gradients, 5e-4)
        mine, error = kernel_solve(*given, **settings)
        assert (error <= 1e-5).all() and (mine-plan).abs().sum((-2, -1)).max() < 1e-3

def check_function():
    "Through autograd: weights, inputs that need no gradient, strided inputs, one problem alone"
    import torch
    from fcam.transport.kernel import kernel_score
    from fcam.sinkhorn import transport_score
    cost, r, c, eps = problems(3, 6, 8)
    cost = cost.mT.contiguous().mT
    gradients, weight = reference(cost, r, c, eps)[2], torch.randn(3)
    leaves = cost.requires_grad_(), r, c.requires_grad_(), eps.requires_grad_()
    detached = [x.detach() for x in leaves]
    score = transport_score(*leaves, tol=1e-5)
    mine = torch.autograd.grad((weight*score).sum(), [x for x in leaves if x.requires_grad], retain_graph=True)
    wanted = gradients[0], *gradients[2:]
    close(mine, [weight.reshape(-1, *[1]*(x.ndim-1))*x for x in wanted], 5e-4)
    score.sum().backward()
    assert r.grad is None
    assert torch.equal(score[1:2], kernel_score(*(x[1:2] for x in detached), **settings, with_gradient=True)[0])
    loose = kernel_score(*detached, tol=1e-3, max_iter=1000, with_gradient=True)[0]
    assert (loose-reference(*detached)[1]).abs().max() < 2e-5

def check_buffer():
    "The backward pass of the score keeps the problem and one buffer of gradients, which it multiplies once"
    from torch.autograd.graph import saved_tensors_hooks
    from fcam.sinkhorn import transport_score
    leaves, kept = [x.requires_grad_() for x in problems(3, 6, 8)], []
    def pack(x):
        kept.append(tuple(x.shape))
        return x
    with saved_tensors_hooks(pack, lambda x: x): transport_score(*leaves)
    assert kept == [(3, 6, 8), (3, 6), (3, 8), (3,), (3, 6*8+6+8+1)]

def check_second_derivatives():
    "A loss of the gradients is differentiated as in double precision, where the kernel does not apply"
    import torch
    from fcam.sinkhorn import sinkhorn, transport_score
    given = problems(2, 4, 5)
    weight = torch.randn(2, dtype=torch.float64)
    def second(function, dtype):
        cost, r, c, eps = leaves = [x.to(dtype, copy=True).requires_grad_() for x in given]
        found = function(cost, r/r.sum(-1, keepdim=True), c/c.sum(-1, keepdim=True), eps)
        first = torch.autograd.grad((found.movedim(0, -1)*weight.to(dtype)).sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(x.square().sum() for x in first), leaves)
    for function in (sinkhorn, transport_score):
        close([x.double() for x in second(function, torch.float32)], second(function, torch.float64), 5e-3)

def check_corners():
    import torch
    from fcam.transport.kernel import kernel_score, kernel_solve, split_gradients
    def check_gradients(gradients, size, r, c):
        d_cost, d_r, d_c, d_eps = gradients
        assert all(x.isfinite().all() for x in gradients)
        assert max(d_r.abs().max(), d_c.abs().max()) <= 2*(r.shape[1]+c.shape[1])*size
        assert not any(x[r == 0].any() for x in (d_cost, d_r)) and not any(x[c == 0].any() for x in (d_cost.mT, d_c))
        assert max(d_r.sum(-1).abs().max(), d_c.sum(-1).abs().max()) < 1e-4*max(1, size)
    def run(cost, r, c, eps, max_iter=1000):
        (n, m), eps = cost.shape[1:], torch.full((len(cost),), eps)
        plan, error = kernel_solve(cost, r, c, eps, tol=1e-5, max_iter=max_iter)
        assert error.max() <= 1e-5 or max_iter < 1000
        assert plan.isfinite().all() and error.isfinite().all() and not plan[r == 0].any() and not plan.mT[c == 0].any()
        buffer, = kernel_score(cost, r, c, eps, tol=1e-5, max_iter=max_iter, with_gradient=True)[2]
        check_gradients(split_gradients(buffer, n, m), cost.abs().max(), r, c)
        return plan, error
    cost, r, c, _ = problems(1, 5, 6, True)
    for eps in (20., 0.003): run(cost, r, c, eps)
    even, blocks = torch.full((1, 6), 1/6), 1-torch.block_diag(torch.ones(3, 3), torch.ones(3, 3))[None]
    for eps in (0.2, 0.005): run(blocks, even, torch.randn(1, 6).softmax(-1), eps)
    run(torch.randint(2, (1, 6, 6)).float(), even, even, 0.02)
    plan, _ = run(torch.zeros(1, 5, 6), r, c, 0.003)
    assert (plan-r[..., None]*c[:, None]).abs().max() < 1e-6
    run(torch.rand(1, 5, 6), torch.eye(5)[:1], c, 0.1)
    assert run(torch.rand(1, 1, 1), torch.ones(1, 1), torch.ones(1, 1), 0.1)[0].item() == pytest.approx(1, abs=1e-6)
    assert run(*problems(1, 6, 6)[:3], 0.01, max_iter=1)[1].item() > 1e-5

def check_choice():
    "The public functions and the metric take the kernel by themselves, and give what the solver gives"
    import torch
    from contextlib import ExitStack
    from unittest import mock
    import fcam.sinkhorn
    from fcam.metric import AdaptiveMetric
    given = problems(4, 5, 6)
    leaves = [x.reshape(2, 2, *x.shape[1:]).clone().requires_grad_() for x in given]
    weight, metric, sets = torch.randn(2, 2, 5, 6), AdaptiveMetric(8), (torch.randn(2, 3, 8), torch.randn(2, 4, 8))
    def everything():
        plan, score = fcam.sinkhorn.sinkhorn(*leaves), fcam.sinkhorn.transport_score(*leaves)
        loss = (weight*plan).sum()+score.square().sum()
        return [plan, score, metric(*sets), *torch.autograd.grad(loss, leaves)]
    def without(*names):
        stack = ExitStack()
        for name in names: stack.enter_context(mock.patch.object(fcam.sinkhorn, name, side_effect=AssertionError(f'{name} was chosen')))
        return stack
    with without('solve', 'score_and_gradients'): by_kernel = everything()
    with mock.patch.object(fcam.sinkhorn, 'kernel_applies', return_value=False):
        with without('kernel_solve', 'kernel_score'): plain = everything()
    for x, y in zip(by_kernel, plain): assert (x-y).norm() <= 5e-4*y.norm()

checks = check_values, check_function, check_buffer, check_second_derivatives, check_corners, check_choice

@pytest.mark.parametrize('check', [f.__name__ for f in checks])
def test_interpreter(check):
    code = f'import test_kernel; test_kernel.{check}()'
    done = subprocess.run([sys.executable, '-W', 'error::RuntimeWarning', '-c', code], cwd=Path(__file__).parent, capture_output=True, text=True,
                          env={**os.environ, 'TRITON_INTERPRET': '1', 'OMP_NUM_THREADS': '1'})
    assert done.returncode == 0, done.stderr

without_interpreter = '''
import torch, warnings
from fcam.transport.kernel import _starts, kernel_applies
assert not kernel_applies(torch.zeros(1, 3, 3), 'score')
if not torch.cuda.is_available():
    with warnings.catch_warnings(record=True) as caught:
        for m in (3, 3): assert not _starts(torch.device('cpu'), 3, m, 'score')
    assert len(caught) == 1 and 'slower PyTorch path' in str(caught[0].message)
'''

def test_without_interpreter_the_cpu_takes_the_other_path():
    env = {k: v for k, v in os.environ.items() if k != 'TRITON_INTERPRET'}
    done = subprocess.run([sys.executable, '-W', 'always', '-c', without_interpreter], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr

broken = {'raises': 'raise RuntimeError("two versions are mixed")', 'is a folder that was left behind': '',
          'has no language': '__version__ = "3.3.0"', 'is old': '__version__ = "2.9.1"', 'has no number': '__version__ = "unknown"'}

@pytest.mark.parametrize('how', broken)
def test_a_triton_that_is_broken_is_as_none(how, tmp_path):
    "Whatever `import triton` raises, and a version that is no number"
    (tmp_path/'triton').mkdir()
    (tmp_path/'triton/__init__.py').write_text(broken[how])
    if 'version' in broken[how] and 'language' not in how: (tmp_path/'triton/language.py').write_text('constexpr = int')
    code = 'import torch; from fcam.transport import kernel; assert kernel.triton is None; assert not kernel.kernel_applies(torch.zeros(1, 3, 3), "plan")'
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[1]), os.environ.get('PYTHONPATH', '')])
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, env={**os.environ, 'PYTHONPATH': path})
    assert done.returncode == 0, done.stderr

# ---- the machine code

def cuobjdump():
    import triton
    own = Path(triton.__file__).parent/'backends/nvidia/bin/cuobjdump'
    return str(own) if own.exists() else shutil.which('cuobjdump')

def compiled(kernel, pointers, scalars, constants, n_registers, folder):
    "PTX for sm_90, the registers of a thread, and the bytes that it spills"
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    signature = dict.fromkeys(pointers, '*fp32') | scalars | dict.fromkeys(constants, 'constexpr')
    source = ASTSource(fn=kernel, signature=signature, constexprs={(kernel.arg_names.index(k),): v for k, v in constants.items()})
    built = triton.compile(source, target=GPUTarget('cuda', 90, 32), options=dict(num_warps=1, maxnreg=n_registers, enable_fp_fusion=True))
    (folder/'kernel.cubin').write_bytes(built.asm['cubin'])
    said = subprocess.run([cuobjdump(), '-res-usage', folder/'kernel.cubin'], capture_output=True, text=True)
    usage = dict(re.findall(r'\b(REG|STACK):(\d+)', said.stdout+said.stderr))
    return built.asm['ptx'], int(usage['REG']), int(usage['STACK'])

@pytest.mark.parametrize('n', [9, 16, 25, 32])
def test_machine_code(n, tmp_path, monkeypatch):
    "Registers do not spill, and the lanes lie as the kernel means them: any other layout shuffles several times as much"
    if not cuobjdump(): pytest.skip('no cuobjdump: this Triton comes without the CUDA toolchain')
    from fcam.transport.kernel import _registers, _solve_kernel
    if not hasattr(_solve_kernel, 'cache_key'): pytest.skip('TRITON_INTERPRET is set in this process')
    monkeypatch.setenv('TRITON_CACHE_DIR', str(tmp_path))
    tile = 16 if n <= 16 else 32
    constants = dict(n=n, m=n, n_rows=tile, n_columns=tile, wanted='gradients')
    ptx, registers, spilled = compiled(_solve_kernel, ['cost', 'r', 'c', 'eps', 'out', 'score', 'error'], dict(tol='fp32', max_iter='i32'), constants, _registers[tile**2], tmp_path)
    assert spilled <= 16, (registers, spilled)
    assert 0 < ptx.count('shfl.sync') < 700
