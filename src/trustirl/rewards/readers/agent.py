"""A learned reward in plain NumPy: Reward("reward.npz")(obs, action, next_obs, terminated), batches of each."""

from typing import Any

import numpy as np


class Reward:
    """Read off an agent's values, Q(s, a) - g V(s'), or off its policy, scale * (log pi(a|s) - log p(a))."""

    def __init__(self, path: str = "reward.npz") -> None:
        with np.load(path, allow_pickle=False) as file:
            self.parts = {name: file[name] for name in file.files}

    def __call__(self, obs: Any, action: Any, next_obs: Any = None, terminated: Any = False) -> Any:
        p, obs = self.parts, self._seen(obs)
        if "action_low" not in p:
            paid = self._least(obs)[np.arange(len(obs)), np.asarray(action) - p["action_start"]]
            values = self._least(self._seen(next_obs)) / p["temperature"]
            after = p["temperature"] * np.logaddexp.reduce(values, axis=1)
            return paid - p["discount"] * np.where(terminated, 0, after)
        low, high = p["action_low"], p["action_high"]
        action = 2 * (np.clip(np.asarray(action, np.float32), low, high) - low) / (high - low) - 1
        if "scale" in p:
            mean, log_std = self._policy(obs)
            u = np.arctanh(np.clip(action, -p["inside"], p["inside"]))
            return p["scale"] * (_log_density((u - mean) / np.exp(log_std), log_std, u) + u.shape[1] * np.log(2))
        after, (mean, log_std) = 0, self._policy(self._seen(next_obs))
        for noise in p["noise"]:
            u = mean + np.exp(log_std) * noise
            value = self._least(np.concatenate([self._seen(next_obs), np.tanh(u)], axis=1))[:, 0]
            after = after + (value - p["temperature"] * _log_density(noise, log_std, u)) / len(p["noise"])
        paid = self._least(np.concatenate([obs, action], axis=1))[:, 0]
        return paid - p["discount"] * np.where(terminated, 0, after)

    def _seen(self, obs: Any) -> Any:
        return np.clip((np.asarray(obs, np.float32) - self.parts["mean"]) / self.parts["std"], -10, 10)

    def _least(self, x: Any) -> Any:
        return np.min([self._network(f"critic{i}", x) for i in range(int(self.parts["critics"]))], axis=0)

    def _network(self, name: str, x: Any) -> Any:
        p = self.parts
        for layer in range(int(p[f"{name}.layers"])):
            if layer and f"{name}.scale{layer - 1}" in p:
                x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
                x = x * p[f"{name}.scale{layer - 1}"] + p[f"{name}.shift{layer - 1}"]
            x = (np.maximum(x, 0) if layer else x) @ p[f"{name}.weight{layer}"].T + p[f"{name}.bias{layer}"]
        return x

    def _policy(self, obs: Any) -> Any:
        p, x = self.parts, self._network("actor", obs)
        if "waves" not in p:
            mean, log_std = np.split(x, 2, axis=1)
            return mean, np.clip(log_std, *p["log_std_limits"])
        angle = x @ p["waves"].T + p["phases"]
        turns = np.floor(angle / np.pi + 0.5)
        features = (angle - np.pi * turns) * (1 - 2 * (turns % 2)) * p["wave_height"]
        variance = np.square(np.einsum("bi,aij->baj", features, p["factors"])).sum(axis=-1)
        return features @ p["means"].T, np.log(p["most_std"] * np.tanh(np.sqrt(variance + p["least_variance"])))


def _log_density(noise: Any, log_std: Any, u: Any) -> Any:
    log_slope = 2 * (np.log(2) - u - np.logaddexp(0, -2 * u))
    return np.sum(-0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - log_slope, axis=1)
