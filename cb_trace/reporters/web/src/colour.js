// Colours by what they say: purple, alone takes less than in the step; orange, it takes more.
// PuOr of ColorBrewer: told apart by colour-blind people, and the sign is printed as well.

import { scaleLinear } from "d3-scale";
import { interpolateLab } from "d3-interpolate";

const PALETTES = {
  light: {
    diverging: ["#5e3c99", "#b2abd2", "#f1f1ef", "#fdb863", "#e66101"],
    sequential: ["#eef3f8", "#1d5c96"],
    bounds: { compute: "#1d5c96", bandwidth: "#7fb3d9", latency: "#f0c987", host: "#d98c3f",
      sync: "#b2abd2", communication: "#7a5aa8" },
  },
  dark: {
    diverging: ["#a894ee", "#5d5390", "#2c3038", "#855a26", "#f39a3d"],
    sequential: ["#242a33", "#6cb1ee"],
    bounds: { compute: "#4a90d0", bandwidth: "#27567f", latency: "#8a6a33", host: "#c9772c",
      sync: "#6b6196", communication: "#a894ee" },
  },
};
const FULL = 3; // doublings from the middle to the end of the scale: 8 times, or an eighth

let palette = PALETTES.light;
let diverging, sequential;

export function useTheme(name) {
  palette = PALETTES[name];
  diverging = scaleLinear([-1, -0.5, 0, 0.5, 1], palette.diverging).interpolate(interpolateLab).clamp(true);
  sequential = scaleLinear([0, 1], palette.sequential).interpolate(interpolateLab).clamp(true);
}

export const errorColour = (ratio) => diverging(Math.log2(1 + ratio) / FULL);
export const shareColour = (share) => sequential(share);
export const boundColour = (bound) => palette.bounds[bound];
export const bounds = () => Object.keys(palette.bounds);

// Ends and middle for the legend.
export const errorTicks = [-7 / 8, -1 / 2, 0, 1, 7];
export const tickPlace = (ratio) => (Math.log2(1 + ratio) / FULL + 1) / 2;

// Black or white text, whichever reads better on a colour ("rgb(r, g, b)").
export function inkOn(colour) {
  const [r, g, b] = channels(colour).map((c) => {
    const part = c / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#15171b" : "#ffffff";
}

function channels(colour) {
  if (colour.startsWith("#")) {
    return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  }
  return colour.match(/\d+/g).slice(0, 3).map(Number);
}
