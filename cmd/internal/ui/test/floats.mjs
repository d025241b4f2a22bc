// Pseudo-random numbers of every kind, the same in each run: some special values, and numbers with random bits.
const special = [0, -0, NaN, Infinity, -Infinity, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308, 1795394751.29, 0.1 + 0.2, 2 ** 53 + 2, 1e21, 1e-7];

export function floats(n, seed = 17) {
  let state = BigInt(seed);
  const toss = () => { // SplitMix64.
    state = BigInt.asUintN(64, state + 0x9e3779b97f4a7c15n);
    let z = state;
    z = BigInt.asUintN(64, (z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
    z = BigInt.asUintN(64, (z ^ (z >> 27n)) * 0x94d049bb133111ebn);
    return z ^ (z >> 31n);
  };
  const view = new DataView(new ArrayBuffer(8));
  return Array.from({ length: n }, (_, i) => {
    if (i < special.length) return special[i];
    const bits = toss();
    // Every tenth number is subnormal: its exponent is 0.
    view.setBigUint64(0, i % 10 === 0 ? bits & 0x800fffffffffffffn : bits);
    return view.getFloat64(0);
  });
}
