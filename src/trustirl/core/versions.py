"""Which packages an environment's behaviour depends on."""

import gymnasium as gym

from trustirl.core.machine import installed


def simulator_versions(env: gym.Env) -> dict[str, str]:
    """Versions of Gymnasium and of the simulators behind an environment."""
    ancestry = " ".join(f"{cls.__module__}.{cls.__name__}" for cls in type(env.unwrapped).__mro__).lower()
    robotics = "gymnasium_robotics" in ancestry  # its mazes hide their MuJoCo environment inside
    used = {
        "gymnasium": True,
        "mujoco": robotics or "mujoco" in ancestry,
        "gymnasium-robotics": robotics,
        "box2d-py": "box2d" in ancestry,
        "box2d": "box2d" in ancestry,  # the same by another name: one of the two is installed
    }
    return {package: found for package, needed in used.items() if needed and (found := installed(package))}
