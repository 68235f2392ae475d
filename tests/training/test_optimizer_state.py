"""Optimiser state that went through a file must act as if it never had."""

import torch

from fusedplanes.training.optimizer_state import load_optimizer_state


def test_moments_of_channels_last_weights_meet_their_own_elements_again():
    def run(steps_before: int, steps_after: int, through_file: bool) -> torch.Tensor:
        torch.manual_seed(0)
        layer = torch.nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last)
        adam = torch.optim.Adam(layer.parameters(), lr=0.1, fused=True)

        def step():
            adam.zero_grad()
            layer(torch.randn(2, 4, 5, 5)).square().mean().backward()
            adam.step()

        for _ in range(steps_before):
            step()
        if through_file:
            state = adam.state_dict()
            for moments in state["state"].values():
                for name, value in moments.items():
                    moments[name] = value.clone(memory_format=torch.contiguous_format)
            weights = {name: value.clone() for name, value in layer.state_dict().items()}
            adam = torch.optim.Adam(layer.parameters(), lr=0.5, fused=True)
            layer.load_state_dict(weights)
            load_optimizer_state(adam, state)
        for _ in range(steps_after):
            step()
        return layer.weight.detach().clone()

    torch.testing.assert_close(run(3, 3, True), run(3, 3, False), rtol=0, atol=0)
