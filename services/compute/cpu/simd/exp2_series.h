// The polynomial of the vector types' Exp2.
#pragma once

namespace strata::compute {

// 2^r for |r| <= 1/2 by the Taylor polynomial of degree 6 (remainder below 1.3e-7): the same
// operations in the same order for every V, a vector type as vec_portable.h explains them.
template <typename V>
typename V::F Exp2Series(typename V::F r) {
  typename V::F p = V::Set1(1.54035304e-4F);
  for (const float c :
       {1.33335581e-3F, 9.61812911e-3F, 5.55041087e-2F, 0.240226507F, 0.693147181F, 1.0F}) {
    p = V::MulAdd(p, r, V::Set1(c));
  }
  return p;
}

}  // namespace strata::compute
