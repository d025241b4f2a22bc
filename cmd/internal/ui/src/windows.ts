// The sealed windows of a tenant: api/v1/cassia/windows.
import { call } from './api';
import { useLoad } from './parts';

export interface Window {
  resolution: string;
  start: string;
  end: string;
  hidden?: string;
  goes?: string;
  bytes: number;
  slots: number;
  of: number;
  again: number;
  imported: number;
  unrolled: number;
}

export type Kept = Record<'raw' | '5m' | '1h', number>;

export interface Windows {
  windows: Window[];
  cut: boolean;
  kept: Kept;
  longest: Kept;
}

export const resolutions = ['raw', '5m', '1h'] as const;

export const widths: Record<string, string> = { raw: 'samples', '5m': '5-minute buckets', '1h': '1-hour buckets' };

export function useWindows(tenant: string) {
  return useLoad((signal) => call<Windows>('cassia/windows', {}, { tenant, signal }).then((a) => a.data), [tenant], 60_000);
}
