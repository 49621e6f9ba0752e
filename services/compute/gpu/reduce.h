// Reductions over the threads of a group and of a block. The order of additions is fixed, so equal
// inputs give equal bits.
#pragma once

#include "services/compute/gpu/device.h"

namespace strata::compute::gpu {

// Every lane gets the result.
STRATA_DEVICE float GroupSum(float value) {
  for (int mask = kGroup / 2; mask > 0; mask /= 2) value += ShuffleXor(value, mask);
  return value;
}

template <typename T>
STRATA_DEVICE T GroupMax(T value) {
  for (int mask = kGroup / 2; mask > 0; mask /= 2) {
    const T other = ShuffleXor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}

// Every thread gets the result. `scratch`: shared memory for a float per group, free again after
// the next SyncBlock.
STRATA_DEVICE float BlockSum(float value, float* scratch) {
  const float group = GroupSum(value);
  if (LaneIndex() == 0) scratch[GroupIndex()] = group;
  SyncBlock();
  float sum = 0;
  for (int i = 0; i < BlockThreads() / kGroup; ++i) sum += scratch[i];
  return sum;
}

}  // namespace strata::compute::gpu
