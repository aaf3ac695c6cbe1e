"""TRRO's promise on 200 random MDPs at once: ell never falls, and it does move."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.theory.worlds import TEMPERATURES, random_world
from trustirl.algorithms import ALGORITHMS
from trustirl.core.mdp import MDP
from trustirl.irl.loop import Step, make_loop
from trustirl.nets.rewards import reward_factory
from trustirl.rl import exact
from trustirl.rollouts.exact import exact_sampler
