"""Train rl4co's attention model for vehicle routing, from eight different solutions per instance.

Needs `pip install 'rl4co~=0.7.0'`. Run it with `python examples/routing_rl4co.py`.
"""

from rl4co.envs import CVRPEnv
from rl4co.models import AttentionModelPolicy
from rl4co.utils import RL4COTrainer

from swor.integrations.rl4co import PolicyGradient, best_of_k


def main(epochs: int = 5, steps: int = 50) -> None:
    env = CVRPEnv(generator_params={"num_loc": 20})
    policy = AttentionModelPolicy(env_name=env.name)
    sizes = {"batch_size": 64, "train_data_size": 64 * steps, "val_data_size": 256}
    module = PolicyGradient(env, policy, estimator="unordered_set", k=8, **sizes)
    quiet = {"logger": False, "enable_checkpointing": False}
    RL4COTrainer(max_epochs=epochs, precision="32-true", **quiet).fit(module)
    for method, best in best_of_k(policy, env, env.reset(batch_size=[100]), k=16).items():
        print(f"{method:>17}: best of 1 {best[:, 0].mean():.3f}, of 16 {best[:, -1].mean():.3f}")


if __name__ == "__main__":
    main()
